# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor of worker processes, with jobs that need no evaluator."""

import asyncio
from pathlib import Path

import pytest

from engine.search.pool import PoolStatistics
from engine.workers.executor import ExecutorError
from engine.workers.local import local_executor
from tests.engine.workers.scripted_job import ScriptedJob

pytestmark = pytest.mark.integration


def play(job: ScriptedJob, games: int) -> tuple[list[tuple[int, int]], PoolStatistics, list[str]]:
    """Play games in two processes: the games, what all workers asked of evaluators, and the messages."""
    notes: list[str] = []

    async def run() -> tuple[list[tuple[int, int]], PoolStatistics]:
        executor = await local_executor(job, notes.append, workers=2)
        try:
            assert await executor.open() == 8
            lists = await asyncio.gather(*(executor.play([number]) for number in range(games)))
        finally:
            await executor.close()
        return [game for found in lists for game in found if isinstance(game, tuple)], executor.statistics()

    return *asyncio.run(run()), notes


def test_games_are_shared_out_and_messages_and_statistics_come_back(tmp_path: Path) -> None:
    played, total, notes = play(ScriptedJob(str(tmp_path)), 8)
    assert [number for number, _ in played] == list(range(8))
    assert sorted([pid for _, pid in played].count(pid) for pid in {pid for _, pid in played}) == [4, 4]
    assert (total.searches, total.evaluations, total.moves) == (8, 800, 24)
    assert total.mean_batch == pytest.approx(20)
    assert sum("one of 2 processes" in note for note in notes) == 8


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    played, _, notes = play(ScriptedJob(str(tmp_path), deaths=2), 6)
    assert sorted(number for number, _ in played) == list(range(6))
    assert sum("ended with exit code 3" in note for note in notes) == 2


def test_workers_that_only_die_are_given_up_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"exit code 3"):
        play(ScriptedJob(str(tmp_path), deaths=1000), 1)


def test_games_that_always_fail_are_given_up_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"the board is gone"):
        play(ScriptedJob(str(tmp_path), refuses_to_play="the board is gone"), 1)


def test_supervisor_reports_at_once_why_workers_do_not_start(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"^no board here$"):
        play(ScriptedJob(str(tmp_path), refuses_to_open="no board here"), 1)

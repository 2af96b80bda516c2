# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop that plays numbered games, with an executor and a campaign that a test can look into."""

import asyncio
import gc
import json
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from engine.apps.campaign.campaign import Campaign, RunEnding
from engine.apps.games.journal import JournalError
from engine.search.pool import PoolStatistics
from engine.workers.executor import ExecutorError, GameExecutor, GameJob, LocalExecutor, Log, MakeExecutor
from tests.engine.apps.games.recorder import Recorder


async def nothing() -> None:
    """Do nothing."""


@dataclass
class Games:
    """An executor whose games are their numbers. held: games that never end. fails: a game that raises.
    cancelled: called when a held game is cancelled."""

    games_per_task: int = 1
    held: frozenset[int] = frozenset()
    fails: int | None = None
    cancelled: Callable[[], Awaitable[None]] = nothing
    calls: list[list[int]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    closed: bool = False

    async def open(self) -> int:
        return 3

    async def play(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        self.in_flight += len(numbers)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            if self.held.intersection(numbers):
                try:
                    await asyncio.Event().wait()
                finally:
                    await self.cancelled()
            if self.fails in numbers:
                raise RuntimeError("a game failed")
            return list(numbers)
        finally:
            self.in_flight -= len(numbers)

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(evaluations=7)

    async def close(self) -> None:
        self.closed = True


class Numbers(Campaign[int, int]):
    """Remembers what is written and counted. enough: games that end the run. full: the disk is full."""

    job: Any = None

    def __init__(self, summary_file: Path, *, enough: int | None = None, full: bool = False) -> None:
        super().__init__(range(0), summary_file)
        self.enough, self.full = enough, full
        self.unblocked = threading.Event()
        self.written: list[int] = []
        self.counted: list[int] = []
        self.refused = False
        self.threads: set[str] = set()

    def write(self, game: int) -> int:
        self.threads.add(current_thread().name)
        if self.full:
            if self.refused:
                self.unblocked.wait()
            self.refused = True
            raise JournalError("cannot write")
        self.written.append(game)
        return game

    def count(self, entry: int) -> None:
        self.counted.append(entry)

    def over(self) -> bool:
        return self.enough is not None and len(self.counted) >= self.enough

    def summary(self) -> dict[str, Any] | None:
        return {"games": len(self.counted)} if self.counted else None


class View(Recorder):
    """Also checks the state. on_game: called with each game."""

    def __init__(self, on_game: Callable[[int], None] = lambda game: None) -> None:
        super().__init__()
        self._on_game = on_game

    def started(self, state: Numbers) -> None:
        assert state.throughput.games == 0

    def game_over(self, state: Numbers, entry: int) -> None:
        super().game_over(state, entry)
        assert state.throughput.games == len(self.records)
        self._on_game(entry)


def making(games: GameExecutor[int]) -> MakeExecutor[int]:
    """Makes this executor, whatever the job."""

    async def make(job: GameJob[int], log: Log) -> GameExecutor[int]:
        return games

    return make


def play(
    numbers: Iterable[int],
    games: Games,
    campaign: Numbers,
    view: View | None = None,
    *,
    concurrency: int = 0,
    most: int | None = None,
    time_limit_s: float = 0.0,
) -> RunEnding:
    campaign.concurrency, campaign.time_limit_s = concurrency, time_limit_s
    run = campaign.play(view or View(), numbers, most=most, make_executor=making(games))
    ending = asyncio.run(run)
    assert games.closed
    return ending


def test_every_game_is_written_down_and_counted_once(tmp_path: Path) -> None:
    games, campaign, view = Games(), Numbers(tmp_path / "summary.json"), View()
    ending = play([4, 0, 7, 2, 9], games, campaign, view)
    assert ending == "finished"
    assert sorted(campaign.written) == sorted(campaign.counted) == sorted(view.records) == [0, 2, 4, 7, 9]
    assert len(campaign.threads) == 1
    assert current_thread().name not in campaign.threads
    assert (campaign.playing, campaign.throughput.games, campaign.throughput.pool.evaluations) == (0, 5, 7)
    assert json.loads((tmp_path / "summary.json").read_text("utf-8")) == {"games": 5}


@pytest.mark.parametrize(
    ("concurrency", "most", "expected"), [(0, None, 3), (0, 2, 2), (5, None, 5), (5, 4, 4), (1, 4, 1)]
)
def test_as_many_games_are_played_at_once_as_are_asked_for(
    tmp_path: Path, concurrency: int, most: int | None, expected: int
) -> None:
    games, campaign = Games(), Numbers(tmp_path / "summary.json")
    play(range(20), games, campaign, concurrency=concurrency, most=most)
    assert games.most_in_flight == expected
    assert campaign.throughput.concurrency == expected


def test_games_that_are_best_played_together_are_asked_for_together(tmp_path: Path) -> None:
    games = Games(games_per_task=2)
    play([0, 1, 3, 4, 5, 8], games, Numbers(tmp_path / "summary.json"), concurrency=4)
    assert games.calls == [[0, 1], [3], [4, 5], [8]]


def test_a_result_ends_the_run_while_games_are_in_flight(tmp_path: Path) -> None:
    games, campaign = Games(held=frozenset({1})), Numbers(tmp_path / "summary.json", enough=4)
    ending = play(count(), games, campaign)
    assert ending == "finished"
    assert len(campaign.counted) >= 4
    assert 1 not in campaign.counted
    assert (games.in_flight, campaign.playing) == (0, 0)


def test_the_time_limit_ends_a_run_without_end(tmp_path: Path) -> None:
    games = Games(held=frozenset({2, 3, 4}))
    campaign = Numbers(tmp_path / "summary.json")
    ending = play(count(), games, campaign, time_limit_s=0.05)
    assert ending == "time"
    assert set(campaign.counted) <= {0, 1}
    assert (games.in_flight, campaign.written) == (0, campaign.counted)


def test_a_game_that_fails_ends_the_run_and_the_others_are_kept(tmp_path: Path) -> None:
    games, campaign = Games(fails=6), Numbers(tmp_path / "summary.json")
    with pytest.raises(RuntimeError, match="a game failed"):
        play(count(), games, campaign, concurrency=1)
    assert campaign.written == campaign.counted == list(range(6))
    assert json.loads((tmp_path / "summary.json").read_text("utf-8")) == {"games": 6}


class Breaking(LocalExecutor[int, None]):
    """Games that some numbers end by an error that nobody thought of."""

    broken: Collection[int] = ()

    async def start(self) -> int:
        return 3

    async def play_game(self, number: int) -> int:
        if number in self.broken:
            raise RecursionError("too deep")
        return number


@pytest.mark.parametrize("broken", [(), (3,), range(100)])
def test_an_error_in_a_game_takes_no_other_game(tmp_path: Path, broken: Collection[int]) -> None:
    campaign, view, executor = Numbers(tmp_path / "summary.json"), View(), Breaking(None, None)
    executor.broken = broken
    expected = [number for number in range(40) if number not in broken]
    run = campaign.play(view, range(40), make_executor=making(executor))
    if not broken:
        assert asyncio.run(run) == "finished"
    else:
        with pytest.raises(ExecutorError, match=r"game .*: RecursionError: too deep; the same command plays"):
            asyncio.run(run)
        assert any("failed: RecursionError" in note for note in view.notes) and len(view.notes) < 20
    assert sorted(campaign.written) == expected


async def test_run_raises_the_first_failed_write_when_the_disk_is_full(tmp_path: Path) -> None:
    campaign = Numbers(tmp_path / "summary.json", full=True)
    seen: list[dict[str, Any]] = []

    async def until_all_writes_failed() -> None:
        campaign.unblocked.set()
        while any("_keep" in repr(task) for task in asyncio.all_tasks()):
            await asyncio.sleep(0)

    games = Games(held=frozenset({2}), cancelled=until_all_writes_failed)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    with pytest.raises(JournalError, match="cannot write"):
        await campaign.play(View(), range(3), make_executor=making(games))
    gc.collect()
    assert not seen


async def test_cancelled_run_writes_what_is_over(tmp_path: Path) -> None:
    games, campaign = Games(), Numbers(tmp_path / "summary.json")

    def cancel(game: int) -> None:
        if game == 5:
            task = next(task for task in asyncio.all_tasks() if "main" in task.get_name())
            task.cancel()

    task = asyncio.current_task()
    assert task is not None
    task.set_name("main")

    ending = await campaign.play(View(on_game=cancel), count(), make_executor=making(games))
    assert not task.cancelling()
    assert ending == "interrupted"
    assert games.closed
    assert 5 in campaign.counted
    assert sorted(campaign.written) == sorted(campaign.counted)


def test_unwritable_summary_is_reported_once_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "summary.json").mkdir()
    view = View()
    play(range(4), Games(), Numbers(tmp_path / "summary.json"), view)
    (note,) = view.notes
    assert note.startswith(f"cannot write {tmp_path / 'summary.json'}: ")


def test_a_run_without_a_game_writes_no_summary(tmp_path: Path) -> None:
    play([], Games(), Numbers(tmp_path / "summary.json"))
    assert not (tmp_path / "summary.json").exists()

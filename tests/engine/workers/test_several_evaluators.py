# SPDX-License-Identifier: GPL-3.0-or-later
"""Matches and self-play on several evaluators, of which one is killed while games go on."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from engine.apps.match.adjudication import Adjudication
from engine.apps.selfplay.archive import Folder
from engine.apps.selfplay.campaign import SelfPlayCampaign
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.match.matches import engine, match, play
from tests.engine.apps.selfplay.test_selfplay import RANDOM, check_folder, config
from tests.engine.evaluation.evaluators import RunningEvaluator
from tests.engine.evaluation.test_failover import addresses
from tests.engine.evaluation.test_several import positions

pytestmark = pytest.mark.integration

GAMES = 16

BEFORE = 500
"""Positions after which an evaluator is killed, of some 10,000."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[RunningEvaluator]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RunningEvaluator(tmp_path, name)) for name in "abc"]


@contextmanager
def killed_in_use(evaluator: RunningEvaluator) -> Iterator[None]:
    """Kill an evaluator in use. The games themselves may all be over before the first are written."""
    over = threading.Event()

    def kill() -> None:
        while positions(evaluator) < BEFORE:
            assert not over.is_set(), "the games did not use the evaluator"
        evaluator.kill()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        try:
            yield
        finally:
            over.set()
            killing.result()


def test_self_play_loses_no_game_when_an_evaluator_is_killed(
    tmp_path: Path, three: list[RunningEvaluator]
) -> None:
    view = Recorder()
    settings = config(
        tmp_path / "run",
        games=GAMES,
        concurrency=8,
        nodes=40,
        workers=2,
        options=RANDOM.changed(evaluator=addresses(*three)),
    )
    with killed_in_use(three[0]):
        assert asyncio.run(SelfPlayCampaign(settings).run(view)) == "finished", view.notes
    check_folder(Folder(tmp_path / "run"), GAMES)
    assert any("evaluator lost" in note for note in view.notes)
    assert not any("ended early" in note for note in view.notes)
    assert all(positions(evaluator) > 0 for evaluator in three[1:])


def test_match_loses_no_game_when_evaluator_is_killed(tmp_path: Path, three: list[RunningEvaluator]) -> None:
    players = [
        engine(name, nodes=nodes, evaluator=addresses(*three)) for name, nodes in (("a", 30), ("b", 20))
    ]
    settings = match(
        tmp_path,
        players,
        games=GAMES,
        concurrency=8,
        workers=1,
        adjudication=Adjudication(max_moves=40),
    )
    with killed_in_use(three[2]):
        ending, _, view = play(settings, Recorder())
    assert ending == "finished", view.notes
    assert sorted(record.number for record in view.records) == list(range(GAMES))
    assert any("evaluator lost" in note for note in view.notes)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks that one evaluator has besides the engine's own: of levels, and the second one of HumanPlay."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine._core import Game
from engine.options import Options
from engine.search.limits import Clock, Limits
from engine.search.pool import SearchPool
from engine.search.report import Report
from engine.search.session import Session
from engine.search.strength import levels
from protocol import EvaluatorClient
from tests.engine.network_operator import NEW, OLD, Operator, hash_of, operated
from tests.engine.uci.uci_process import eventually

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="evaluators listen on ipc addresses"),
    pytest.mark.integration,
]

ONE = Limits(nodes=1)
PEOPLE: dict[str, Any] = {"human_play": True, "human_temperature": 0.0}


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with operated(tmp_path) as made:
        yield made


@pytest.fixture
def session(operator: Operator) -> Iterator[Session]:
    opened = Session(operator.options, log=operator.notes.append)
    yield opened
    opened.close()


def values(report: Report) -> tuple[str, tuple[float, float, float]]:
    return report.network, report.lines[0].wdl


def networks(operator: Operator) -> set[str]:
    with EvaluatorClient(operator.evaluator.address) as client:
        return {network.content_hash for network in client.networks}


def test_level_plays_with_its_network_and_analysis_without(
    operator: Operator, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "NETWORK", str(operator.file("level", NEW)))
    before = values(session.search(ONE))
    session.options = session.options.changed(limit_strength=True, elo=800)
    move = values(session.search(ONE, play=True))
    assert hash_of(NEW) in move[0]
    assert values(session.search(ONE)) == before
    assert networks(operator) == {hash_of(OLD), hash_of(NEW)}
    assert values(session.search(ONE, play=True)) == move


def test_level_uses_the_engines_network_when_its_own_is_absent(
    operator: Operator, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "NETWORK", "absent.pb.gz")
    session.options = session.options.changed(limit_strength=True)
    for _ in range(2):
        assert hash_of(OLD) in session.search(ONE, play=True).network
    assert len([note for note in operator.notes if "absent.pb.gz" in note]) == 1


def test_two_policies_are_mixed_and_no_tree_holds_values_of_both(
    operator: Operator, session: Session, tmp_path: Path
) -> None:
    second = str(operator.file("second", NEW))
    alone = {OLD: session.search(ONE)}
    with closing(Session(operator.options.changed(weights=second))) as other:
        alone[NEW] = other.search(ONE)

    def mixed(share: float) -> Report:
        session.options = operator.options.changed(human_weights=second, human_mix=share, **PEOPLE)
        return session.search(ONE, play=True)

    assert mixed(0.0).best_move == alone[OLD].best_move
    assert mixed(1.0).best_move == alone[NEW].best_move
    assert alone[OLD].best_move != alone[NEW].best_move
    assert values(mixed(0.5)) == values(alone[OLD])
    session.options = operator.options
    assert values(session.search(ONE)) == values(alone[OLD])


def test_a_pool_waits_as_long_as_a_person_would(operator: Operator) -> None:
    options = operator.options.changed(human_time=True, **PEOPLE)
    with SearchPool() as pool:
        player = pool.player(options, Random(1))
        found = player.search(Game(), Limits(clock=Clock(10**8, 10**8)), play=True)
        eventually(lambda: pool.statistics().searches == 1)
        assert not found.done()
        player.stop()
        assert found.result(60).best_move
        player.close()


def test_a_lost_evaluator_s_successor_gets_the_second_network_too(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    with operated(folder) as operator:
        path, second = str(operator.path), str(operator.file("second", NEW))
        options = Options(
            weights=path, backend="reference", human_weights=second, human_mix=1.0, hash=4, **PEOPLE
        )
        with closing(Session(options)) as session:
            before = session.search(ONE, play=True)
            link = session.start_evaluator()
            assert link.client is not None
            link.lost(link.client, "as a test wants it")
            assert session.search(ONE, play=True).best_move == before.best_move

# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of searches, games and answers when an evaluator process gets another network."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine._core import Game
from engine.apps.analysis.scheduler import QueryScheduler
from engine.apps.analysis.settings import AnalysisSettings
from engine.apps.games.openings import Opening
from engine.apps.match.adjudication import Adjudication
from engine.apps.match.config import PlayerConfig
from engine.apps.match.game import GameRules, play_game
from engine.apps.match.players.player import EnginePlayer
from engine.apps.match.schedule import ScheduledGame
from engine.apps.match.timecontrol import TimeControl
from engine.apps.selfplay import game as selfplay
from engine.apps.selfplay.config import SelfPlayConfig
from engine.commands.analysis import default_options
from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.search.pool import PoolPlayer, SearchPool
from engine.search.report import Report
from engine.search.session import Session
from tests.engine.apps.analysis.recording import RecordingClient
from tests.engine.network_operator import CHANGES, FOREIGN, NEW, NOW, OLD, WAIT_S, Operator, hash_of, operated
from tests.programs import say, started

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="evaluators listen on ipc addresses"),
    pytest.mark.integration,
]


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with operated(tmp_path) as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Operator]:
    """Of another evaluator with the same network."""
    with operated(tmp_path / "other") as made:
        yield made


def first_look(session: Session) -> tuple[str, tuple[float, float, float]]:
    """The network, and what it says of a position."""
    session.set_position(None, ["d2d4"])
    report = session.search(Limits(nodes=1))
    return report.network, report.lines[0].wdl


@pytest.mark.parametrize("change", CHANGES)
def test_an_idle_engine_uses_nothing_of_the_network_before(operator: Operator, change: str) -> None:
    session, fresh = (Session(operator.options, log=operator.log) for _ in range(2))
    try:
        before = first_look(session)
        CHANGES[change](operator)
        session.new_game()
        after = first_look(session)
        assert before != after
        if change != "unload alone":  # Without a default, nobody can come who names no network.
            assert after == first_look(fresh)
        first_look(session)
        assert len(operator.notes) == 1, "it is logged once"
    finally:
        session.close()
        fresh.close()


@contextmanager
def searching(session: Session) -> Iterator[tuple[threading.Event, Callable[[], Report]]]:
    """An infinite search in a thread: what is set at each report, and what stops it and returns its last."""
    control, began = SearchControl(), threading.Event()
    reports: list[Report] = []

    def search() -> None:
        found = session.search(Limits(infinite=True), control=control, on_report=lambda report: began.set())
        reports.append(found)

    thread = threading.Thread(target=search)

    def end() -> Report:
        control.stop()
        thread.join(WAIT_S)
        return reports[0]

    thread.start()
    try:
        yield began, end
    finally:
        control.stop()
        thread.join(WAIT_S)
        session.close()


@pytest.mark.parametrize(
    ("change", "bursts", "named"),
    [
        *((change, True, "") for change in CHANGES),
        ("reload", False, ""),
        ("swap", False, ""),
        ("reload", True, "served"),
        ("swap", True, "served"),
    ],
)
def test_a_running_search_starts_over(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, change: str, bursts: bool, named: str
) -> None:
    if not bursts:
        monkeypatch.setattr(PooledPipeline, "lend", lambda _: None)
    options = operator.options.changed(weights=named, transposition_visits=1, batches_in_flight=3)
    with searching(Session(options, log=operator.log)) as (began, end):
        assert began.wait(WAIT_S)
        CHANGES[change](operator)
        assert operator.noted.wait(WAIT_S), "the search has started over"
        began.clear()
        assert began.wait(WAIT_S), "the search continues"
        report = end()
        wanted = hash_of(FOREIGN if change == "other input planes" else NEW)
        assert report.network.split()[0] == wanted
        assert not report.ended_early and report.nodes > 0
        assert len(operator.notes) == 1


def test_a_search_follows_several_reloads(operator: Operator) -> None:
    with searching(Session(operator.options, log=operator.log)) as (began, end):
        for number in range(4):
            assert began.wait(WAIT_S)
            operator.noted.clear()
            operator.reload(OLD if number % 2 else NEW)
            assert operator.noted.wait(WAIT_S)
            began.clear()
        assert end().network.split()[0] == hash_of(OLD)


def test_returned_evaluator_may_have_another_network(operator: Operator) -> None:
    with closing(Session(operator.options, log=operator.log)) as session:
        before = first_look(session)
        operator.evaluator.kill()
        operator.file("served", NEW)
        operator.evaluator.start()
        report = session.search(Limits(nodes=50))
        assert before[0].split()[0] == hash_of(OLD)
        assert report.network.split()[0] == hash_of(NEW) and report.nodes >= 50
        assert len(operator.notes) == 1


@pytest.mark.parametrize("change", ["reload", "unload alone", "other input planes"])
def test_searches_of_a_pool_start_over(operator: Operator, change: str) -> None:
    with SearchPool(log=operator.log) as pool:
        players = [pool.player(operator.options) for _ in range(6)]
        futures = [player.search(Game(), Limits(infinite=True)) for player in players]
        first = pool.player(operator.options).search(Game(), Limits(nodes=50)).result(WAIT_S)
        assert first.network.split()[0] == hash_of(OLD)
        CHANGES[change](operator)
        assert operator.noted.wait(WAIT_S)
        # Long enough for the others to get their answers of the network before.
        last = pool.player(operator.options).search(Game(), Limits(nodes=200)).result(WAIT_S)
        for player in players:
            player.stop()
        wanted = hash_of(FOREIGN if change == "other input planes" else NEW)
        found = {future.result(WAIT_S).network.split()[0] for future in futures}
        assert found == {wanted} == {last.network.split()[0]}
        assert len(operator.notes) == 1


class Watched(SearchPool):
    """Notes the network of each player's searches; calls `act` before the search of a number."""

    def __init__(self, act: Callable[[], None], at: int, log: Callable[[str], None]) -> None:
        super().__init__(log=log)
        self.searched: dict[PoolPlayer, list[str]] = {}
        self._act, self._at, self._count = act, at, 0

    def player(self, *arguments: Any, **options: Any) -> PoolPlayer:
        player = super().player(*arguments, **options)
        networks = self.searched[player] = []
        search = player.search

        def watched(*arguments: Any, **options: Any) -> Future[Report]:
            self._count += 1
            if self._count == self._at:
                self._act()
            future = search(*arguments, **options)
            future.add_done_callback(lambda done: networks.append(done.result().network.split()[0]))
            return future

        player.search = watched  # type: ignore[method-assign]
        return player


def test_a_game_of_self_play_is_of_one_network(operator: Operator) -> None:
    config = SelfPlayConfig(operator.options, games=1, nodes=8, max_plies=8)
    pool = Watched(operator.reload, 5, operator.log)
    with pool:
        game = pool.drive(selfplay.play_game(0, Opening("start"), config, pool)).result(timeout=60)
        given_up, played = pool.searched.values()
        assert {*given_up} == {hash_of(OLD), hash_of(NEW)}
        assert {*played} == {hash_of(NEW)}
        assert len(game.record.moves) == len(played) == 8
    assert len(operator.notes) == 1


def test_a_game_of_a_match_is_of_one_network(operator: Operator) -> None:
    """Of one for each player, and of one where players use the same."""
    config = PlayerConfig("one", TimeControl(nodes=8), operator.options)
    pool = Watched(operator.reload, 4, operator.log)
    with pool:
        white, black = EnginePlayer(config, pool), EnginePlayer(config, pool)
        record = asyncio.run(
            play_game(
                ScheduledGame(0, 0, 0, 0, 1),
                Opening("start"),
                white,
                black,
                GameRules(Adjudication(max_moves=3)),
            )
        )
        searched = [networks for networks in pool.searched.values() if networks]
    assert len(record.moves) == 6
    assert [networks[-3:] for networks in searched] == [[hash_of(NEW)] * 3] * 2
    assert sum(map(len, searched)) == 3 + 1 + 6, "three moves before, and the one that showed it"


def test_analysis_answers_with_the_network_of_the_moment(operator: Operator) -> None:
    options = default_options().changed(evaluator=operator.evaluator.address, hash=8, tree_memory=64)
    scheduler, client = QueryScheduler(options, AnalysisSettings(searches=2)), RecordingClient()

    def ask(**query: Any) -> dict[str, Any]:
        scheduler.receive(client, json.dumps({"id": "q", **query}))
        return client.next()

    def network() -> tuple[str, Any]:
        answer = ask(moves=["d2d4"], nodes=1)
        listed = ask(action="query_networks")["networks"]
        return listed[0]["content_hash"], answer["root"]["network"]["wdl"]

    scheduler.start()
    try:
        old = network()
        operator.reload()
        new = network()
        assert (old[0], new[0]) == (hash_of(OLD), hash_of(NEW))
        assert old[1] != new[1]
        assert "error" not in ask(nodes=1, network="served")
        assert "error" in ask(nodes=1, network=hash_of(OLD))
    finally:
        scheduler.close()


def test_the_command_evaluate_follows(operator: Operator) -> None:
    command = [sys.executable, "-P", "-c", "from engine.cli import console; console()", "evaluate"]
    with started(*command, "--evaluator", operator.evaluator.address) as process:

        def ask() -> dict[str, Any]:
            assert process.stdout is not None
            say(process, '{"fen": "startpos"}\n')
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            return answer

        old = ask()
        operator.swap(FOREIGN)
        new = ask()
        assert "error" not in new and new["wdl"] != old["wdl"]
        assert NOW in process.communicate(timeout=60)[1]


def test_an_engine_goes_from_one_reloaded_evaluator_to_another(operator: Operator, other: Operator) -> None:
    both = f"{operator.evaluator.address},{other.evaluator.address}"
    with closing(Session(operator.options.changed(evaluator=both), log=operator.log)) as session:
        before = first_look(session)
        operator.reload()
        after = first_look(session)
        assert (before[0].split()[0], after[0].split()[0]) == (hash_of(OLD), hash_of(NEW))
        other.reload()
        operator.evaluator.drain()
        session.set_position(None, ["d2d4", "d7d5"])
        report = session.search(Limits(nodes=50))
        assert report.network == after[0] and report.nodes >= 50 and not report.ended_early
        assert len(operator.notes) == 1, "both have the same network"


def test_a_pool_follows_evaluators_that_are_reloaded_in_turn(operator: Operator, other: Operator) -> None:
    both = f"{operator.evaluator.address},{other.evaluator.address}"
    options = operator.options.changed(evaluator=both)

    def searched(pool: SearchPool) -> set[str]:
        searches = [pool.player(options).search(Game(), Limits(nodes=60)) for _ in range(4)]
        return {search.result(WAIT_S).network.split()[0] for search in searches}

    with SearchPool(log=operator.log) as pool:
        assert searched(pool) == {hash_of(OLD)}
        running = pool.player(options).search(Game(), Limits(infinite=True))
        operator.reload()
        assert searched(pool) <= {hash_of(OLD), hash_of(NEW)}
        other.reload()
        while searched(pool) != {hash_of(NEW)}:
            pass
        assert not running.done()
    assert running.result(WAIT_S).network.split()[0] == hash_of(NEW)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The limit `mate`: the mate search, and the network's search after it."""

from contextlib import closing
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter

import pytest

from engine._core import Game
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import DEFAULT_MS, Clock, Limits
from engine.search.player.mate import SLICE, MateSearch
from engine.search.player.task import SearchTask
from engine.search.report import Report
from engine.search.session import Session

MATE_IN_4 = "rnb5/pp1p2k1/6p1/2p2p2/PbP2P2/6P1/Q2NK3/5BNR w - - 1 23"
MATE_IN_1 = "6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1"
DEEP = 100
"""A limit that nothing decides from the initial position."""


@dataclass
class TestClock:
    """A clock that a test sets. seconds: as perf_counter returns."""

    __test__ = False
    seconds: float = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TestClock:
    """The clock of the mate search."""
    clock = TestClock()
    monkeypatch.setattr("engine.search.player.mate.perf_counter", lambda: clock.seconds)
    return clock


def searched(
    fen: str | None, limits: Limits, control: SearchControl | None = None
) -> tuple[Report, list[str]]:
    """Return the report and the messages of a search with random evaluations."""
    said: list[str] = []
    with closing(Session(in_process=True, log=said.append)) as session:
        session.set_position(fen)
        return session.search(limits, control=control), said


def new_search(
    limits: Limits, control: SearchControl | None = None, started: float | None = None
) -> MateSearch:
    game = Game()
    started = perf_counter() if started is None else started
    task = SearchTask(game, game.legal_moves(), limits, Options(), started, Random())
    return MateSearch(task, control or SearchControl())


@pytest.mark.parametrize("limit", [4, 9])
def test_the_shortest_mate_is_reported_without_an_evaluator(limit: int) -> None:
    session = Session()  # Nothing starts its evaluator.
    session.set_position(MATE_IN_4)
    report = session.search(Limits(mate=limit))
    (line,) = report.lines
    assert (line.mate, len(line.moves), line.q, line.wdl) == (4, 7, 1.0, (1.0, 0.0, 0.0))
    assert (report.best_move, report.ponder, report.depth) == (line.moves[0], line.moves[1], 7)
    assert report.nodes > 1000
    assert session._remote is not None and session._remote.links[0].pid is None
    session.close()


def test_network_chooses_when_no_mate_is_proven() -> None:
    report, said = searched(MATE_IN_4, Limits(mate=3, nodes=9000))
    assert said == ["no mate in 3"]
    assert 6000 < report.nodes <= 9000 and report.lines[0].mate is None


def test_root_moves_limit_the_mate_search() -> None:
    report, said = searched(MATE_IN_1, Limits(mate=1, nodes=500, search_moves=("a1a2", "d1d7")))
    assert said == ["no mate in 1 with these moves"]
    assert report.best_move in ("a1a2", "d1d7")
    assert searched(MATE_IN_1, Limits(mate=1, search_moves=("a1a2", "d1d8")))[0].best_move == "d1d8"


def test_positions_are_limited_by_nodes() -> None:
    report, said = searched(None, Limits(mate=DEEP, nodes=30_000))
    assert len(said) == 1
    assert said[0].startswith(f"mate in {DEEP} not decided after 300") and said[0].endswith(": none in 3")
    assert report.nodes <= 30_000


@pytest.mark.parametrize(
    "limits",
    [Limits(movetime_ms=400), Limits(clock=Clock(40 * 400, 10**6)), Limits(clock=Clock(400, 10**6, 10**6))],
)
def test_half_of_the_time_is_for_the_mate_search(limits: Limits, clock: TestClock) -> None:
    search = new_search(replace(limits, mate=DEEP), started=clock.seconds)
    clock.seconds += 0.19
    assert search.advance()
    clock.seconds += 0.01
    assert not search.advance()
    assert search.report() is None and search.remaining_task().limits == limits


def test_a_stopped_search_still_sees_a_short_mate() -> None:
    control = SearchControl()
    control.stop()
    assert searched(MATE_IN_1, Limits(mate=DEEP), control)[0].best_move == "d1d8"


def test_no_time_runs_while_pondering(clock: TestClock) -> None:
    control = SearchControl(pondering=True)
    search = new_search(Limits(mate=DEEP, movetime_ms=100, ponder=True), control, started=clock.seconds - 10)
    assert search.advance()
    control.ponder_hit(clock.seconds)
    assert search.advance()
    clock.seconds += 0.06
    assert not search.advance()


def test_the_default_time_begins_after_the_mate_search(clock: TestClock) -> None:
    control = SearchControl(pondering=True)
    search = new_search(Limits(mate=DEEP, ponder=True), control, started=clock.seconds)
    control.ponder_hit(clock.seconds - 60)
    assert search.remaining_task().limits.movetime_ms == 60_000 + DEFAULT_MS
    task = new_search(Limits(mate=DEEP), started=clock.seconds - 60).remaining_task()
    assert (task.limits.movetime_ms, task.started) == (DEFAULT_MS, clock.seconds)


def test_news_comes_with_excluded_mates_at_intervals(clock: TestClock) -> None:
    search = new_search(Limits(mate=DEEP), started=clock.seconds - 2)
    assert search.progress_text() == ""
    for _ in range(20):
        assert search.advance()
    assert search.progress_text().startswith("no mate in ")
    assert search.progress_text() == "", "too early, and nothing is new"


def test_a_slice_is_short() -> None:
    search = new_search(Limits(mate=DEEP))
    search.advance()
    assert SLICE <= search._solver.positions < 2 * SLICE

# SPDX-License-Identifier: GPL-3.0-or-later
"""Thinking on the opponent's time: what is searched and what is shown."""

from collections.abc import Callable, Iterator

import pytest

from engine._core import Game
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.report import Report
from engine.search.session import Session

MOVES = ["e2e4", "e7e5", "g1f3"]
EXPECTED = "b8c6"
PONDER = Limits(clock=Clock(60_000, 60_000), ponder=True)


@pytest.fixture
def session() -> Iterator[Session]:
    opened = Session(Options(smart_pruning_factor=0.0, minibatch_size=32), in_process=True)
    opened.set_position(moves=MOVES)
    opened.search(Limits(nodes=3000))
    yield opened
    opened.close()


def pondered(session: Session, end: Callable[[SearchControl], None], limits: Limits = PONDER) -> list[Report]:
    """Ponder on the expected move; `end` is called with the first report. Returns all reports, the last one
    from after that."""
    session.set_position(moves=[*MOVES, EXPECTED])
    control = SearchControl(pondering=True)
    reports: list[Report] = []

    def on_report(report: Report) -> None:
        reports.append(report)
        if control.pondering:
            end(control)

    reports.append(session.search(limits, control=control, on_report=on_report))
    return reports


def visits_of(session: Session, move: str) -> int:
    """What a search of one visit finds in the tree after that reply."""
    session.set_position(moves=[*MOVES, move])
    return session.search(Limits(nodes=1)).nodes


def test_pondering_reports_begin_after_the_expected_move(session: Session) -> None:
    first, *_, last = pondered(session, SearchControl.stop)
    game = Game()
    for move in (*MOVES, EXPECTED):
        game.push_uci(move)
    assert first.best_move in game.legal_moves()
    assert first.best_move == first.lines[0].moves[0]
    assert first.nodes > first.lines[0].visits > 0
    assert last.best_move in game.legal_moves()
    assert last.nodes >= first.nodes, "the tree under the expected move is the one that was grown"
    assert last.lines[0].moves[0] == last.best_move


def test_after_a_hit_the_search_continues_with_what_was_searched(session: Session) -> None:
    before = visits_of(session, EXPECTED)
    limits = Limits(nodes=10, ponder=True)
    *shown, last = pondered(session, SearchControl.ponder_hit, limits)
    assert shown[0].nodes > before + 1000
    # Draws by a repetition that has become part of the game are searched again.
    assert last.nodes >= 0.98 * shown[0].nodes
    assert last.playouts >= shown[0].playouts, "those on the opponent's time are counted"

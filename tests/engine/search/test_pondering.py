"""Thinking on the opponent's time: what is searched, what is shown, and what is left after a miss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from engine._core import Game
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.pondering import after_expected_move, task_before_move
from engine.search.report import Line, Report
from engine.search.task import SearchTask
from engine.session import Session

MOVES = ["e2e4", "e7e5", "g1f3"]
EXPECTED, OTHER = "b8c6", "g8f6"
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


def test_what_is_shown_begins_after_the_expected_move(session: Session) -> None:
    first, *_, last = pondered(session, SearchControl.stop)
    game = Game()
    for move in (*MOVES, EXPECTED):
        game.push_uci(move)
    assert first.best_move in game.legal_moves()
    assert first.best_move == first.lines[0].moves[0]
    assert first.nodes == first.lines[0].visits > 0
    assert last.best_move in game.legal_moves()
    assert last.nodes >= first.nodes, "the tree under the expected move is the one that was grown"
    assert last.lines[0].moves[0] == last.best_move


def test_after_a_hit_the_search_goes_on_with_what_was_searched(session: Session) -> None:
    before = visits_of(session, EXPECTED)
    limits = Limits(nodes=10, ponder=True)
    *shown, last = pondered(session, SearchControl.ponder_hit, limits)
    assert shown[0].nodes > before + 1000
    # Draws by a repetition that has become part of the game are searched again.
    assert last.nodes >= 0.98 * shown[0].nodes
    assert last.playouts >= shown[0].playouts, "those on the opponent's time are counted"


def test_after_a_miss_the_tree_of_the_move_that_was_played_is_still_there(session: Session) -> None:
    known = Session(Options(smart_pruning_factor=0.0, minibatch_size=32), in_process=True)
    known.set_position(moves=MOVES)
    known.search(Limits(nodes=3000))
    before = visits_of(known, OTHER)
    known.close()
    assert before > 10
    pondered(session, SearchControl.stop)
    assert visits_of(session, OTHER) == before


def test_without_a_move_the_position_itself_is_pondered_on() -> None:
    game = Game()
    task = SearchTask(game, game.legal_moves(), PONDER, Options(), 0.0, Random(1))
    assert task_before_move(task) is None


def test_the_search_before_the_move_has_that_move_alone_and_no_limit_but_the_hit() -> None:
    game = Game()
    game.push_uci("e2e4")
    limits = Limits(clock=Clock(1, 1), nodes=1, ponder=True, search_moves=("e7e5",))
    before = task_before_move(SearchTask(game, game.legal_moves(), limits, Options(), 0.0, Random(1)))
    assert before is not None
    assert before.game.moves() == []
    assert before.root_moves == ["e2e4"]
    assert before.limits.unbounded
    assert game.moves() == ["e2e4"]


def line(**values: object) -> Line:
    found = {"moves": ("e2e4", "e7e5", "g1f3"), "visits": 7, "q": 0.25, "wdl": (0.5, 0.25, 0.25)}
    return Line(**{**found, "moves_left": 30.0, "prior": 0.5, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mate", "seen"),
    [(None, None), (3, -2), (-1, 1), (-4, 4)],
    ids=["none", "the opponent mates in three, one played", "we mate in one", "we mate in four"],
)
def test_a_line_is_turned_round(mate: int | None, seen: int | None) -> None:
    report = Report("e2e4", "e7e5", (line(mate=mate),), nodes=8, depth=5, draw_score=0.5)
    own = after_expected_move(report)
    assert own is not None
    assert own.draw_score == -0.5, "what a draw is worth to the other side"
    assert (own.best_move, own.ponder, own.nodes, own.depth) == ("e7e5", "g1f3", 7, 4)
    (shown,) = own.lines
    assert shown.moves == ("e7e5", "g1f3")
    assert (shown.q, shown.wdl, shown.moves_left, shown.mate) == (-0.25, (0.25, 0.25, 0.5), 29.0, seen)


def test_of_a_position_that_was_not_visited_yet_nothing_is_shown() -> None:
    assert after_expected_move(Report("e2e4", None)) is None
    assert after_expected_move(Report("e2e4", None, (line(moves=("e2e4",)),))) is None

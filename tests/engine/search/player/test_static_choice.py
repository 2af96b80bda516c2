# SPDX-License-Identifier: GPL-3.0-or-later
"""The move without a search: legal, not the worst, and what was expected if the game went that way."""

import random

import chess
import pytest

from engine._core import Game
from engine.options import Options
from engine.search.limits import Limits
from engine.search.player.static_choice import continued, static_lines
from engine.search.report import Line
from engine.search.session import Session
from tests.rounds import rounds


def choice(fen: str | None = None, *, chess960: bool = False) -> str:
    game = Game(fen, chess960)
    return static_lines(game, game.legal_moves(), 1)[0].moves[0]


@pytest.mark.parametrize(
    ("fen", "moves"),
    [
        (None, {"e2e4", "d2d4"}),
        ("6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1", {"d1d8"}),  # mate
        ("4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1", {"e4d5"}),  # a queen for nothing
        ("4k3/8/4p3/3p4/8/8/3Q4/3K4 w - - 0 1", None),  # a pawn that is protected: not with the queen
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", {"a7a8q"}),
        ("4k3/8/8/8/8/2n5/8/R3K3 w - - 0 1", None),
    ],
)
def test_material_is_won_and_not_given_away(fen: str | None, moves: set[str] | None) -> None:
    played = choice(fen)
    if moves is None:
        assert played not in ("d2d5", "a1a2")
    else:
        assert played in moves


def test_any_position_has_a_static_move() -> None:
    chance = random.Random(5)
    for seed in range(rounds(12, 2)):
        board = chess.Board.from_chess960_pos(chance.randrange(960)) if seed % 2 else chess.Board()
        for _ply in range(60):
            if board.is_game_over():
                break
            game = Game(board.fen(), board.chess960)
            (line,) = static_lines(game, game.legal_moves(), 1)
            assert line.moves[0] in game.legal_moves()
            assert -1 <= line.q <= 1 and sum(line.wdl) == pytest.approx(1)
            board.push(chance.choice(list(board.legal_moves)))


def test_the_choice_is_among_the_moves_given() -> None:
    game = Game()
    expected = Line(("e2e4", "e7e5"), 10, 0.1, (0.3, 0.5, 0.2), 90.0, 0.4)
    assert static_lines(game, ["a2a3", "h2h4"], 1, expected)[0].moves[0] in ("a2a3", "h2h4")
    assert static_lines(game, ["a2a3", "e2e4"], 1, expected) == (expected,)


@pytest.mark.parametrize("expected", [None, Line(("a2a3", "e7e5"), 10, 0.1, (0.3, 0.5, 0.2), 90.0, 0.4)])
def test_as_many_lines_as_asked_for_are_there_without_a_search(expected: Line | None) -> None:
    game = Game()
    moves = ["h2h4", "a2a3", "e2e4"]
    lines = static_lines(game, moves, 2, expected)
    assert [line.moves[0] for line in lines] == (["a2a3", "e2e4"] if expected else ["e2e4", "h2h4"])
    assert {line.moves[0] for line in static_lines(game, moves, 50, expected)} == set(moves)


def test_a_line_continues_as_long_as_the_game_follows_it() -> None:
    line = Line(("e2e4", "e7e5", "g1f3"), 10, 0.1, (0.3, 0.5, 0.2), 90.0, 0.4)
    after_one = continued(line, ["a2a3"], ["a2a3", "e2e4"])
    assert after_one is not None
    assert (after_one.moves, after_one.q, after_one.wdl) == (("e7e5", "g1f3"), -0.1, (0.2, 0.5, 0.3))
    after_two = continued(line, [], ["e2e4", "e7e5"])
    assert after_two is not None
    assert (after_two.moves, after_two.q) == (("g1f3",), 0.1)
    assert continued(line, [], ["e2e4", "c7c5"]) is None
    assert continued(line, [], ["e2e4", "e7e5", "g1f3"]) is None
    assert continued(line, ["a2a3"], ["e2e4"]) is None


def test_without_an_evaluator_a_session_says_what_its_tree_knows() -> None:
    session = Session(
        Options().changed(smart_pruning_factor=0.0, hash=1, value_choice_share=1.0), in_process=True
    )
    first = session.search(Limits(nodes=500)).lines[0]
    session.set_position(None, first.moves[:2])
    kept = session.report_without_search(Limits(infinite=True))
    assert kept.best_move == kept.lines[0].moves[0] == first.moves[2]
    assert 0 < kept.nodes < 500

    session.clear()
    expected = session.report_without_search(Limits(infinite=True))
    assert (expected.nodes, expected.best_move) == (0, first.moves[2])

    game = Game()
    for move in first.moves[:2]:
        game.push_uci(move)
    other = next(move for move in game.legal_moves() if move != first.moves[2])
    limited = session.report_without_search(Limits(search_moves=(other,)))
    assert limited.best_move == other

    session.new_game()
    assert session.report_without_search(Limits(infinite=True)).best_move in ("e2e4", "d2d4")

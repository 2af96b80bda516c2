# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews against the judge."""

import chess.pgn
import pytest

from benchmarks.strength.review_marks import KNOWN, Figures, Judged, compared, judged_games, known


def test_a_review_is_compared_move_by_move() -> None:
    judged = {
        "id": "a",
        "result": "0-1",
        "moves": "f2f3 e7e5 g2g4 d8h4",
        "judged": "48,2 400,0 0,400 1000,0 -",
    }
    game = Judged.of(judged)
    assert game.expected == pytest.approx([0.523, 0.3, 0.3, 0.0, 0.0])
    moves = [{"white": ply % 2 == 0, "mark": mark} for ply, mark in enumerate(("", "mistake", "blunder", ""))]
    # 1... e5 lost nothing, 1. f3 lost 22 % without a mark, and 2. g4 30 % with one.
    seen: set[str] = set()
    assert compared(game, {"decisive": 2, "moves": moves}, seen) == Figures(1, 1, 1, 2, 1, 2, 1)
    # The second game counts as one, its moves do not.
    assert compared(game, {"decisive": None, "moves": moves}, seen) == Figures(1)


def test_known_games_name_a_move_that_the_loser_played() -> None:
    reviews = []
    with KNOWN.open(encoding="utf-8") as stream:
        while (game := chess.pgn.read_game(stream)) is not None:
            moves = [
                {
                    "ply": node.ply() - 1,
                    "number": (node.ply() + 1) // 2,
                    "white": not node.turn(),
                    "san": node.san(),
                }
                for node in game.mainline()
            ]
            (lost,) = [
                move["ply"]
                for move in moves
                if f"{move['number']}{'.' if move['white'] else '...'} {move['san']}"
                == game.headers["LostWith"]
                and move["white"] is (game.headers["Result"] == "0-1")
            ]
            reviews.append({"headers": game.headers, "moves": moves, "decisive": lost})
    assert len(reviews) == 10 and known(reviews) == 0
    assert known([{**reviews[0], "decisive": None}, {**reviews[1], "decisive": 0}]) == 1


def test_judged_games_are_those_of_the_figures() -> None:
    halves = [{game.name for game in judged_games() if game.half == half} for half in (0, 1)]
    assert min(map(len, halves)) > 180 and not halves[0] & halves[1]

# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews against the judge."""

import pytest

from benchmarks.strength.review_marks import Figures, Judged, compared


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
    assert compared(game, {"decisive": 2, "moves": moves}) == Figures(1, 1, 1, 2, 1, 2, 1)
    assert compared(game, {"decisive": None, "moves": moves})[:3] == (1, 0, 0)

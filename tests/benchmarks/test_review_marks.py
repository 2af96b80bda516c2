# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmarks/strength/review_marks.py: intervals, figures and kept values, without Stockfish."""

from __future__ import annotations

import json
from pathlib import Path

import chess
import pytest

from benchmarks.common.figures import wilson
from benchmarks.strength.review_marks import Compared, Values, ended, found, harmless, key_of


def test_wilson_intervals_are_those_of_the_formula() -> None:
    assert wilson(40, 40) == pytest.approx((0.9124, 1.0), abs=1e-4)
    assert wilson(7, 9) == pytest.approx((0.4526, 0.9368), abs=1e-3)
    assert wilson(0, 0) == (0.0, 1.0)


def test_figures_count_blunders_and_harmless_marks() -> None:
    moves = [Compared(1, "blunder", 0.3, 0.4), Compared(1, "", 0.05, 0.2), Compared(2, "mistake", 0.2, 0.09)]
    assert found(moves, 0.1) == (1, 2)
    assert harmless(moves, 0.1) == (1, 2)


def test_values_are_kept_by_position_and_refused_for_other_nodes(tmp_path: Path) -> None:
    path, board = tmp_path / "values.json", chess.Board()
    path.write_text(json.dumps({"nodes": 10, "centipawns": {key_of(board): 100}}), "utf-8")
    assert Values(path, 10).of(board) == pytest.approx(0.7311, abs=1e-4)
    with pytest.raises(SystemExit, match="10 nodes"):
        Values(path, 20)


def test_a_third_repetition_is_a_draw() -> None:
    board = chess.Board()
    for uci in ("g1f3", "g8f6", "f3g1", "f6g8") * 2:
        assert ended(board) is None
        board.push_uci(uci)
    assert ended(board) == 0.5
    assert key_of(board).endswith("f3g1 f6g8")

# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of games by the rules of chess."""

from collections.abc import Sequence

import chess
import pytest

from engine.apps.games.record import Reason
from engine.apps.games.referee import Verdict, end_by_rules, game_of

SHUFFLE = ("g1f3", "g8f6", "f3g1", "f6g8")


@pytest.mark.parametrize(
    ("fen", "moves", "expected"),
    [
        ("7k/5K2/6Q1/8/8/8/8/8 w - - 0 1", ["g6g7"], Verdict("1-0", Reason.CHECKMATE)),
        ("7K/5k2/6q1/8/8/8/8/8 b - - 99 1", ["g6g7"], Verdict("0-1", Reason.CHECKMATE)),
        ("7k/5K2/8/6Q1/8/8/8/8 w - - 0 1", ["g5g6"], Verdict("1/2-1/2", Reason.STALEMATE)),
        ("4k3/8/8/8/8/8/4p3/4K2B w - - 0 1", ["e1e2"], Verdict("1/2-1/2", Reason.INSUFFICIENT_MATERIAL)),
        ("4k3/8/8/8/8/8/4P3/4K2R w - - 99 80", ["h1h2"], Verdict("1/2-1/2", Reason.FIFTY_MOVES)),
        (chess.STARTING_FEN, SHUFFLE * 2, Verdict("1/2-1/2", Reason.THREEFOLD_REPETITION)),
        (chess.STARTING_FEN, SHUFFLE, None),
        ("4k3/8/8/8/8/8/4P3/4K2R w - - 98 80", ["h1h2"], None),
        ("7k/8/6K1/8/8/8/8/R7 w - - 99 80", [], None),  # a claim would draw it, and a8 mates
        ("7k/8/6K1/8/8/8/8/R7 w - - 99 80", ["a1a8"], Verdict("1-0", Reason.CHECKMATE)),
    ],
)
def test_referee_ends_a_game_without_claims(fen: str, moves: Sequence[str], expected: Verdict | None) -> None:
    board = chess.Board(fen)
    for move in moves:
        assert end_by_rules(game_of(board)) is None
        board.push_uci(move)
    assert end_by_rules(game_of(board)) == expected

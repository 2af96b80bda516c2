# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's policy vector: the move of each of its 1858 entries.

Derived from queen and knight moves on an empty board. Squares are a1 = 0, b1 = 1, … h8 = 63, from the view of
the side to move.
"""

from __future__ import annotations

from functools import cache

from protocol.batch import POLICY_SIZE

PROMOTIONS = "qrb"
"""Pieces in the order of their entries. A promotion to a knight is the plain move."""


def reaches(start: int, end: int) -> bool:
    """Return True if a queen or a knight could move from start to end on an empty board."""
    ranks, files = abs(start // 8 - end // 8), abs(start % 8 - end % 8)
    return start != end and (ranks == 0 or files == 0 or ranks == files or {ranks, files} == {1, 2})


def square_name(square: int) -> str:
    return "abcdefgh"[square % 8] + "12345678"[square // 8]


@cache
def policy_moves() -> tuple[str, ...]:
    """Return the 1858 moves: from->to sorted by squares, then promotions by from-file, to-file and piece."""
    plain = [square_name(a) + square_name(b) for a in range(64) for b in range(64) if reaches(a, b)]
    promotions = [
        square_name(48 + a) + square_name(56 + b) + piece
        for a in range(8)
        for b in range(8)
        if abs(a - b) <= 1
        for piece in PROMOTIONS
    ]
    moves = (*plain, *promotions)
    assert len(moves) == POLICY_SIZE
    return moves

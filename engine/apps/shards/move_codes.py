# SPDX-License-Identifier: GPL-3.0-or-later
"""Encoding of moves in shards: from | to << 6 | promotion << 12 (none, knight, bishop, rook, queen)."""

from __future__ import annotations

FILES, RANKS, PROMOTIONS = "abcdefgh", "12345678", " nbrq"


def move_code(move: str) -> int:
    """Return the code of a move in UCI notation."""
    promotion = PROMOTIONS.index(move[4]) if len(move) > 4 else 0
    return _square(move[:2]) | _square(move[2:4]) << 6 | promotion << 12


def uci_move(code: int) -> str:
    """Return the UCI notation of a code."""
    squares = (code & 63, code >> 6 & 63)
    return "".join(FILES[s % 8] + RANKS[s // 8] for s in squares) + PROMOTIONS[code >> 12].strip()


def _square(name: str) -> int:
    return FILES.index(name[0]) + 8 * RANKS.index(name[1])

# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of openings, by position, and what is played in them.

named_openings.tsv has ECO code, name, EPD and moves of 3,807 positions. Its lines are those of
https://github.com/lichess-org/chess-openings (CC0 1.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import chess

MOST_PLIES = 40
"""The longest line has 36."""


@cache
def _rows() -> list[list[str]]:
    lines = Path(__file__).with_name("named_openings.tsv").read_text("utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines]


@cache
def names() -> dict[str, tuple[str, str]]:
    """Return ECO code and name by EPD, with an en-passant square only if a capture is legal."""
    return {epd: (eco, name) for eco, name, epd, _ in _rows()}


def continuations(moves: Sequence[str]) -> Counter[str]:
    """Return the moves of named openings after moves from the initial position, each with their number."""
    begin = "".join(f"{move} " for move in moves)
    rest = (row[3][len(begin) :] for row in _rows() if row[3].startswith(begin))
    return Counter(each.partition(" ")[0] for each in rest if each)


def opening_of(moves: Iterable[chess.Move]) -> tuple[str, str] | None:
    """Return ECO code and name of the last named position of a game from the initial position."""
    return _last_named(moves)[1]


def theory_plies(moves: Iterable[chess.Move]) -> int:
    """Return the number of plies to the last named position of a game from the initial position."""
    return _last_named(moves)[0]


def _last_named(moves: Iterable[chess.Move]) -> tuple[int, tuple[str, str] | None]:
    board, plies, found = chess.Board(), 0, None
    for move in islice(moves, MOST_PLIES):
        board.push(move)
        if named := names().get(board.epd()):
            plies, found = len(board.move_stack), named
    return plies, found

# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of openings, by position.

openings.tsv has ECO code, name and EPD of 3,807 positions. Its lines are those of
https://github.com/lichess-org/chess-openings (CC0 1.0), played to their end.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import chess

MOST_PLIES = 40
"""The longest line has 36."""


@cache
def names() -> dict[str, tuple[str, str]]:
    """Return ECO code and name by EPD, with an en-passant square only if a capture is legal."""
    lines = Path(__file__).with_name("openings.tsv").read_text("utf-8").splitlines()[1:]
    return {epd: (eco, name) for eco, name, epd in (line.split("\t") for line in lines)}


def opening_of(moves: Iterable[chess.Move]) -> tuple[str, str] | None:
    """Return ECO code and name of the last named position of a game from the initial position."""
    board, found = chess.Board(), None
    for ply, move in enumerate(moves):
        if ply == MOST_PLIES:
            break
        board.push(move)
        found = names().get(board.epd(), found)
    return found

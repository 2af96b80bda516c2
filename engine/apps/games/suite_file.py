# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading of test suites: EPD files with `bm` (best moves) or `am` (moves to avoid)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import chess

from engine._core import Game
from engine.apps.games.epd import position_lines, read_epd
from engine.apps.games.text import read_text
from protocol.common.printing import ReportedError, failing_as


@dataclass(frozen=True, slots=True)
class SuitePosition:
    """One position of a suite. best, avoided: moves in UCI notation; at least one of them is not empty."""

    name: str
    fen: str
    best: frozenset[str]
    avoided: frozenset[str]

    def solved_by(self, move: str | None) -> bool:
        """Return True if a move is correct."""
        return move not in self.avoided and (not self.best or move in self.best)


@dataclass(frozen=True, slots=True)
class Suite:
    """A file's positions, and the numbers of skipped lines with the reasons."""

    positions: Sequence[SuitePosition]
    left_out: Mapping[int, str]


def read_suite(path: Path, note: Callable[[str], None] = lambda text: None) -> Suite:
    """Read an EPD file. note: called if it is not UTF-8. Raises ReportedError if no position is usable."""
    with failing_as(ReportedError, f"cannot read {path}"):
        text = read_text(path, note)
    positions: list[SuitePosition] = []
    left_out: dict[int, str] = {}
    for number, line in position_lines(text):
        try:
            positions.append(_position(number, line))
        except ValueError as error:
            left_out[number] = str(error)
    if not positions:
        first = next((f"; line {number}: {reason}" for number, reason in left_out.items()), "")
        raise ReportedError(f"{path}: there is no position in it{first}")
    return Suite(positions, left_out)


def _position(number: int, line: str) -> SuitePosition:
    """Return the position of a line. Raises ValueError."""
    epd = read_epd(line)
    board, operations = chess.Board(epd.fen), epd.operations
    best, avoided = (
        frozenset(board.parse_san(move).uci() for move in operations.get(name, "").split())
        for name in ("bm", "am")
    )
    if not best and not avoided:
        raise ValueError("neither bm nor am says which move is right")
    if not Game(board.fen()).playable:
        raise ValueError("the side to move could take the king")
    return SuitePosition(operations.get("id", str(number)), board.fen(), best, avoided)

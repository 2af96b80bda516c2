# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of EPD and FEN files: lines with a position in four to six fields, and operations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_COMMENTS = ("#", ";", "%", "//")

_COUNTERS = re.compile(r"(\d+)(?:\s+(\d+))?(?=[\s;]|$)")

_OPERATION = re.compile(r'(?:"(?:\\.|[^"\\])*"?|[^";])+')
"""Text between two semicolons. Semicolons in quotes do not separate."""


@dataclass(frozen=True, slots=True)
class EpdLine:
    """A parsed line. fen: six fields. operations: operand by opcode, without quotes."""

    fen: str
    operations: Mapping[str, str]


def position_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers (from 1) and lines with a position. Skips empty lines and comments (# ; % //)."""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line and not line.startswith(_COMMENTS):
            yield number, line


def read_epd(line: str) -> EpdLine:
    """Split a line into its position and its operations.

    The counters come from the FEN, else from `hmvc` and `fmvn`, else they are 0 and 1. Raises ValueError for
    fewer than four fields.
    """
    fields = line.split(None, 4)
    if len(fields) < 4:
        raise ValueError("a position begins with board, side to move, castling and en passant")
    rest = fields.pop() if len(fields) > 4 else ""
    fields[3] = fields[3].rstrip(";")
    counters = _COUNTERS.match(rest)
    operations = {}
    for operation in _OPERATION.findall(rest[counters.end() :] if counters else rest):
        words = operation.split(None, 1)
        if words:
            operations[words[0]] = "".join(words[1:]).strip().strip('"')
    halfmoves, number = counters.groups() if counters else (None, None)
    fields.append(halfmoves or operations.get("hmvc", "0"))
    fields.append(number or operations.get("fmvn", "1"))
    return EpdLine(" ".join(fields), operations)

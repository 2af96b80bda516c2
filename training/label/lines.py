# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses a UCI engine's lines from the output of a search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Label:
    """Best moves and scores. Moves are encoded as in shards, scores are centipawns for the side to move.

    lines: distinct moves and scores, best first. exact: from tablebases; not stored.
    """

    best: int
    cp: int
    lines: tuple[tuple[int, int], ...]
    exact: bool = False


MATE = 32_000
"""Mate in k moves counts as MATE - k centipawns, being mated in k as k - MATE."""

MOST_CP = 31_000
"""Limit of other scores."""


@dataclass(frozen=True, slots=True)
class EngineLine:
    """A line. move: first move, in UCI notation. cp: for the side to move. depth: of the iteration."""

    move: str
    cp: int
    depth: int


def parse_lines(output: bytes, count: int) -> list[EngineLine]:
    """Return the lines of the last complete iteration, best first; fewer than `count` if there was none.

    An iteration is complete if it has `count` consecutive lines of one depth with different moves. A search
    that stops at its node limit lists lines of two depths. Bounds are ignored.
    """
    block: dict[int, EngineLine] = {}
    fullest: dict[int, EngineLine] = {}
    for text in reversed(output.splitlines()):
        if not text.startswith(b"info ") or b" pv " not in text:
            continue
        parsed = _parsed(text)
        if parsed is None:
            continue
        number, line = parsed
        if number in block:
            block = {}
        block[number] = line
        if number != 1:
            continue
        if _complete(block, count):
            return _sorted(block)
        if len(_distinct(block)) > len(fullest):
            fullest = _distinct(block)
        block = {}
    return _sorted(fullest)


def _complete(block: dict[int, EngineLine], count: int) -> bool:
    return (
        len(block) == count
        and len({line.depth for line in block.values()}) == 1
        and len({line.move for line in block.values()}) == count
    )


def _distinct(block: dict[int, EngineLine]) -> dict[int, EngineLine]:
    """Return the block without lines that repeat an earlier line's move."""
    found: dict[str, int] = {}
    for number in sorted(block):
        found.setdefault(block[number].move, number)
    return {number: block[number] for number in found.values()}


def _sorted(block: dict[int, EngineLine]) -> list[EngineLine]:
    return sorted((block[number] for number in sorted(block)), key=lambda line: -line.cp)


def _parsed(text: bytes) -> tuple[int, EngineLine] | None:
    """Return number and content of an `info` line; None for a bound or another kind of line."""
    head, _, variation = text.partition(b" pv ")
    words = head.split()
    values: dict[bytes, bytes] = {}
    for name, value in pairwise(words):
        if name in (b"lowerbound", b"upperbound") or value in (b"lowerbound", b"upperbound"):
            return None
        if name in (b"depth", b"multipv", b"cp", b"mate") and name not in values:
            values[name] = value
    try:
        if b"mate" in values:
            mate = int(values[b"mate"])
            cp = MATE - min(mate, 900) if mate > 0 else -MATE + min(-mate, 900)
        else:
            cp = max(-MOST_CP, min(MOST_CP, int(values[b"cp"])))
        number = int(values.get(b"multipv", b"1"))
        depth = int(values.get(b"depth", b"0"))
        move = variation.split()[0].decode("ascii")
    except (KeyError, ValueError, IndexError):
        return None
    return number, EngineLine(move, cp, depth)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The label of a position."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Label:
    """Best moves and scores. Moves are encoded as in shards, scores are centipawns for the side to move.

    lines: distinct moves and scores, best first. exact: from tablebases; not stored.
    """

    best: int
    cp: int
    lines: tuple[tuple[int, int], ...]
    exact: bool = False

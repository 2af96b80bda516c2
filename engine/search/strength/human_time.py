# SPDX-License-Identifier: GPL-3.0-or-later
"""HumanTime: how long a person would think about a move.

A person plays known openings and forced moves fast, and thinks longest in the middlegame about moves that do
not suggest themselves. Times vary by a lognormal factor, as those of people do.
"""

from __future__ import annotations

from random import Random

from engine.search.limits import Clock
from engine.search.report import Report

MOVES_LEFT = 35
"""Moves that a person shares the rest of the clock among."""

SPREAD = 0.6
"""Standard deviation of the logarithm of a time."""

OPENING_MOVES, OPENING_SHARE = 8, 0.3
OBVIOUS_PRIOR, OBVIOUS_SHARE = 0.7, 0.4
"""Probability of the move from which it suggests itself, and the share of the time that it takes."""

FORCED_SECONDS = 1.0
"""Longest time for the only legal move."""

LARGEST_SHARE = 0.1
"""Largest share of the rest of the clock."""


def believable_seconds(
    clock: Clock, turn: str, fullmove: int, report: Report, *, forced: bool, random: Random
) -> float:
    """Return the seconds that a move should take, 0 without a clock. report: of the move's search."""
    own = clock.of(turn)
    if own is None:
        return 0.0
    left, increment = own[0] / 1000, own[1] / 1000
    moves = min(clock.moves_to_go or MOVES_LEFT, MOVES_LEFT)
    seconds = (left / moves + 0.7 * increment) * random.lognormvariate(-(SPREAD**2) / 2, SPREAD)
    if fullmove <= OPENING_MOVES:
        seconds *= OPENING_SHARE
    if report.lines and report.lines[0].prior >= OBVIOUS_PRIOR:
        seconds *= OBVIOUS_SHARE
    if forced:
        seconds = min(seconds, FORCED_SECONDS)
    return min(seconds, LARGEST_SHARE * left)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The expected number of moves left in a game, from a log-logistic distribution of lengths.

A game lasts longer than x moves with probability 1 / (1 + (x / midpoint)^steepness). lc0's managers use the
median of the rest; ours uses the mean. A player maximises the sum of log(time) over the game's moves, and
loses the time left at its end. Then the best share of the clock per move is 1 / (expected moves).
"""

from __future__ import annotations

from math import pow

NEGLIGIBLE = 1e-3
"""Moves less probable than this are not counted."""


def survival(moves: float, midpoint: float, steepness: float) -> float:
    """Return the share of games that last longer than N moves. midpoint: median length in moves. steepness:
    concentration of lengths around it."""
    return 1 / (1 + pow(max(0.0, moves) / midpoint, steepness))


def expected_moves(played: float, most: int | None, midpoint: float, steepness: float) -> float:
    """Return the mean number of moves to come, the next one included; at least 1.

    played: moves so far. most: moves to the next time control; None counts all.
    """
    reached = survival(played, midpoint, steepness)
    expected, chance, ahead = 0.0, 1.0, 0
    while chance > NEGLIGIBLE and (most is None or ahead < most):
        expected += chance
        ahead += 1
        chance = survival(played + ahead, midpoint, steepness) / reached
    return max(1.0, expected)

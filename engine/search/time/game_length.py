# SPDX-License-Identifier: GPL-3.0-or-later
"""How many moves a game still has: its length follows a log-logistic distribution.

A game lasts longer than x moves with the probability 1 / (1 + (x / midpoint)^steepness). lc0's managers
have the same distribution; their estimate is the median of what is left, ours is its mean. The mean is what
sharing out a clock needs: a player wants the largest sum of log(time) over the moves that will be played, and
loses what is left at the end, spends 1 / (expected moves) of the clock on each.
"""

from __future__ import annotations

from math import pow

NEGLIGIBLE = 1e-3
"""Moves that are played less often than this are not counted."""


def survival(moves: float, midpoint: float, steepness: float) -> float:
    """Share of games that last longer than so many moves. midpoint: their median length in moves. steepness:
    how narrowly lengths lie around it."""
    return 1 / (1 + pow(max(0.0, moves) / midpoint, steepness))


def expected_moves(played: float, most: int | None, midpoint: float, steepness: float) -> float:
    """Mean number of moves to come, the next one included, in a game with so many played: at least 1.

    most: moves after which they do not matter any more (a time control); None: all matter.
    """
    reached = survival(played, midpoint, steepness)
    expected, chance, ahead = 0.0, 1.0, 0
    while chance > NEGLIGIBLE and (most is None or ahead < most):
        expected += chance
        ahead += 1
        chance = survival(played + ahead, midpoint, steepness) / reached
    return max(1.0, expected)


def median_moves(played: float, midpoint: float, steepness: float) -> float:
    """Moves to come in the median of games with so many played: what lc0 plans with.

    The median residual life of the distribution (Clark and El-Taha 2015, "Some Useful Properties of
    Log-Logistic Random Variables for Health Care Simulations").
    """
    return midpoint * pow(1 + 2 * pow(played / midpoint, steepness), 1 / steepness) - played

# SPDX-License-Identifier: GPL-3.0-or-later
"""Distributions of pairs with a known difference in strength, for simulated matches."""

import numpy as np
from numpy.typing import NDArray

from engine.apps.match.results.statistics import PAIR_SCORES, score_of_elo

OPENING_BIAS = 60.0
"""Elo by which an opening favours one side: the two games of a pair feel it in opposite directions."""


def pair_distribution(elo: float) -> NDArray[np.float64]:
    """Probabilities of 0, ½, 1, 1½, 2 points in a pair whose expected score is that of `elo`."""
    low, high = elo - 100, elo + 100
    for _ in range(80):
        middle = (low + high) / 2
        if _pair(middle) @ np.array(PAIR_SCORES) < score_of_elo(elo):
            low = middle
        else:
            high = middle
    return _pair((low + high) / 2)


def _pair(strength: float) -> NDArray[np.float64]:
    return np.convolve(_game(strength + OPENING_BIAS), _game(strength - OPENING_BIAS))


def _game(elo: float) -> NDArray[np.float64]:
    score = score_of_elo(elo)
    draw = 2 * score * (1 - score)
    return np.array([1 - score - draw / 2, draw, score - draw / 2])

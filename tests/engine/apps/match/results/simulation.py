# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated matches: distributions of pairs with a known difference in strength, and the SPRT run on them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.apps.match.results.sprt import Sprt
from engine.apps.match.results.statistics import NORMALISED_ELO, PAIR_SCORES, score_of_elo

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


def normalised_elo_of(distribution: NDArray[np.float64]) -> float:
    """The normalised Elo of a distribution of pairs."""
    scores = np.array(PAIR_SCORES)
    mean = distribution @ scores
    variance = distribution @ (scores - mean) ** 2
    return float((mean - 0.5) / np.sqrt(2 * variance) * NORMALISED_ELO)


def _pair(strength: float) -> NDArray[np.float64]:
    return np.convolve(_game(strength + OPENING_BIAS), _game(strength - OPENING_BIAS))


def _game(elo: float) -> NDArray[np.float64]:
    score = score_of_elo(elo)
    draw = 2 * score * (1 - score)
    return np.array([1 - score - draw / 2, draw, score - draw / 2])


@dataclass(frozen=True)
class Outcomes:
    """accepted_h1: share of the matches. mean_pairs: until the decision."""

    accepted_h1: float
    mean_pairs: float


def simulate(
    sprt: Sprt,
    distribution: NDArray[np.float64],
    *,
    matches: int = 2000,
    look_every: int = 1,
    seed: int = 7,
) -> Outcomes:
    """Play matches until the test decides each; it looks after every `look_every` pairs."""
    random = np.random.default_rng(seed)
    counts = np.zeros((matches, len(PAIR_SCORES)))
    active = np.arange(matches)
    accepted, pairs_played = 0, 0
    looks = max(10, 100 // look_every)
    while active.size:
        new = random.multinomial(look_every, distribution, size=(active.size, looks))
        histories = counts[active][:, None, :] + np.cumsum(new, axis=1)
        llr = sprt.llr_of_counts(histories)
        decided = (llr >= sprt.upper) | (llr <= sprt.lower)
        first = decided.argmax(axis=1)
        over = decided.any(axis=1)
        accepted += int((llr[over, first[over]] >= sprt.upper).sum())
        pairs_played += int((first[over] + 1).sum() + (~over).sum() * looks) * look_every
        counts[active] = histories[:, -1]
        active = active[~over]
    return Outcomes(accepted / matches, pairs_played / matches)

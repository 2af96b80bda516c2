# SPDX-License-Identifier: GPL-3.0-or-later
"""Estimates of strength: Elo, normalised Elo, error bars, likelihood of superiority.

Two games with the same opening and reversed colours are one sample, because the opening makes their results
dependent. If games were played in pairs, the estimates use the pairs (the "pentanomial" model), otherwise the
single games. Intervals are for 95 %.

Elo is -400 log10(1/score - 1). Normalised Elo is (score - ½) / (standard deviation of one game) · 800 / ln
10. Draws and the balance of openings do not affect it (M. Van den Bergh, "Comments on Normalized Elo").
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, inf, isfinite, log, log10, nan, sqrt

import numpy as np

from engine.apps.match.results.likelihood import likeliest_with_mean, regularised

GAME_SCORES = (0.0, 0.5, 1.0)
PAIR_SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)

Z95 = 1.959963984540054
"""Half-width in standard deviations of the central 95 % of the normal distribution."""

NORMALISED_ELO = 800 / log(10)
"""Normalised Elo per standard deviation: the slope of Elo at a score of one half."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Results from one player's point of view.

    pairs: finished pairs by points: 0, ½, 1, 1½, 2. Their games are included in wins, draws, losses.
    """

    wins: int = 0
    draws: int = 0
    losses: int = 0
    pairs: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        return self.wins + self.draws / 2

    @property
    def score(self) -> float:
        """Points per game; nan without games."""
        return self.points / self.games if self.games else nan

    @property
    def draw_ratio(self) -> float:
        """Share of drawn games; nan without games."""
        return self.draws / self.games if self.games else nan

    @property
    def finished_pairs(self) -> int:
        return sum(self.pairs)

    def with_game(self, points: float) -> Tally:
        """Return the tally with another game. points: 0, ½ or 1."""
        return Tally(
            self.wins + (points == 1),
            self.draws + (points == 0.5),
            self.losses + (points == 0),
            self.pairs,
        )

    def with_pair(self, points: float) -> Tally:
        """Return the tally with another pair, whose games are already counted. points: 0 to 2."""
        pairs = list(self.pairs)
        pairs[round(points * 2)] += 1
        a, b, c, d, e = pairs
        return Tally(self.wins, self.draws, self.losses, (a, b, c, d, e))

    def reversed(self) -> Tally:
        """Return the tally from the other player's point of view."""
        e, d, c, b, a = self.pairs
        return Tally(self.losses, self.draws, self.wins, (a, b, c, d, e))

    def __add__(self, other: Tally) -> Tally:
        a, b, c, d, e = (mine + theirs for mine, theirs in zip(self.pairs, other.pairs, strict=True))
        return Tally(
            self.wins + other.wins, self.draws + other.draws, self.losses + other.losses, (a, b, c, d, e)
        )

    def sample(self) -> Sample:
        """Return the results as independent samples: the finished pairs, or the games without any."""
        if self.finished_pairs:
            return Sample(self.pairs, PAIR_SCORES, 2)
        return Sample((self.losses, self.draws, self.wins), GAME_SCORES, 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A histogram of independent results. scores: points per game of each bin. games: per result."""

    counts: tuple[int, ...]
    scores: tuple[float, ...]
    games: int

    @property
    def size(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return sum(n * s for n, s in zip(self.counts, self.scores, strict=True)) / self.size

    @property
    def variance(self) -> float:
        mean = self.mean
        return sum(n * (s - mean) ** 2 for n, s in zip(self.counts, self.scores, strict=True)) / self.size


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % confidence interval. Infinite if all results are equal."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Half of the interval: the number after ±."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        if isfinite(self.value) and isfinite(self.error):
            return f"{self.value:+.1f} ± {self.error:.1f}"
        if self.value != self.value:
            return "–"
        if isfinite(self.low):
            return f"{self.value:+.0f} (over {self.low:+.0f})"
        return f"{self.value:+.0f} (under {self.high:+.0f})" if isfinite(self.high) else f"{self.value:+.0f}"


UNKNOWN = Estimate(nan, nan, nan)


def elo_of_score(score: float) -> float:
    """Return the Elo difference of an expected score; infinite at 0 and 1."""
    if score <= 0:
        return -inf
    if score >= 1:
        return inf
    return 400 * log10(score / (1 - score))


def score_of_elo(elo: float) -> float:
    """Return the expected score of an Elo difference."""
    return float(1 / (1 + 10 ** (-elo / 400)))


def elo(tally: Tally) -> Estimate:
    """Return the Elo difference to the opponents; UNKNOWN without games."""
    sample = tally.sample()
    if not sample.size:
        return UNKNOWN
    low, high = score_interval(sample)
    return Estimate(elo_of_score(sample.mean), elo_of_score(low), elo_of_score(high))


def normalised_elo(tally: Tally) -> Estimate:
    """Return the normalised Elo difference to the opponents; UNKNOWN without games."""
    sample = tally.sample()
    if not sample.size:
        return UNKNOWN
    # The standard deviation of one game is √games times that of a sample's mean.
    deviation = sqrt(sample.games * sample.variance)
    excess = sample.mean - 0.5
    if deviation == 0:
        value = 0.0 if excess == 0 else inf * excess
        return Estimate(value, -inf if value <= 0 else nan, inf if value >= 0 else nan)
    value = excess / deviation * NORMALISED_ELO
    margin = Z95 * NORMALISED_ELO / sqrt(sample.size * sample.games)
    return Estimate(value, value - margin, value + margin)


def likelihood_of_superiority(tally: Tally) -> float:
    """Return the probability that the player is stronger than its opponents; nan without games."""
    sample = tally.sample()
    if not sample.size:
        return nan
    excess = sample.mean - 0.5
    if sample.variance == 0:
        # Equal results have no standard error; a uniform prior gives the probability (Laplace).
        doubt = 0.5 ** (sample.size + 1)
        return 0.5 if excess == 0 else (1 - doubt if excess > 0 else doubt)
    return (1 + erf(excess / sqrt(2 * sample.variance / sample.size))) / 2


def score_interval(sample: Sample) -> tuple[float, float]:
    """Return the 95 % interval of the mean score.

    It is mean ± 1.96 standard errors. If that exceeds 0 to 1 or has no width (few or equal results), the
    bounds come from the likelihood ratio (empirical likelihood, A. Owen 1988), with unobserved results
    possible. So ten wins of ten mean "a score above 0.82", not "certainly 1".
    """
    mean = sample.mean
    margin = Z95 * sqrt(sample.variance / sample.size)
    low, high = mean - margin, mean + margin
    if margin == 0 or low <= 0 or high >= 1:
        low, high = _likelihood_bound(sample, 0.0), _likelihood_bound(sample, 1.0)
    return low, high


def _likelihood_bound(sample: Sample, end: float) -> float:
    """Return the mean score towards `end` at which twice the log likelihood ratio reaches 1.96²."""
    counts = np.array(sample.counts, dtype=np.float64)
    regular = regularised(counts)
    frequencies = regular / regular.sum()
    scores = np.array(sample.scores)
    inside, outside = sample.mean, end
    if inside == outside:
        return end
    for _ in range(25):
        middle = (inside + outside) / 2
        if middle in (0.0, 1.0):
            break
        constrained = likeliest_with_mean(frequencies, scores, middle)
        ratio = 2 * float((counts * np.log(frequencies / constrained)).sum())
        if ratio < Z95**2:
            inside = middle
        else:
            outside = middle
    return inside

# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential probability ratio test, which ends a match once its results decide between two hypotheses.

H0: the first player is elo0 stronger. H1: it is elo1 stronger. After every finished pair the log likelihood
ratio (LLR) of H1 to H0 is compared with two bounds. The probability of a wrong decision is at most alpha if
H0 is true, and beta if H1 is (A. Wald 1945). The hypotheses only fix the strength. The rest of the
distribution has maximum likelihood under each (generalised SPRT, M. Van den Bergh).

elo0 and elo1 are Elo of the expected score ("logistic"), or normalised Elo ("normalised"). With the latter, a
test needs as many games with drawish openings as with sharp ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from engine.apps.match.results.likelihood import (
    Floats,
    likeliest_with_mean,
    likeliest_with_t_value,
    regularised,
)
from engine.apps.match.results.statistics import GAME_SCORES, NORMALISED_ELO, PAIR_SCORES, Tally, score_of_elo
from protocol.common.settings.spec import setting

EloModel = Literal["logistic", "normalised"]
Decision = Literal["continue", "H0", "H1"]


@dataclass(frozen=True, slots=True)
class Sprt:
    """A test. elo0 < elo1. alpha, beta: probabilities of the two wrong decisions, each between 0 and ½."""

    elo0: float = setting(0.0, low=-1000, high=1000)
    elo1: float = setting(5.0, low=-1000, high=1000)
    alpha: float = setting(0.05, high=1)
    beta: float = setting(0.05, high=1)
    model: EloModel = setting("logistic", choices=get_args(EloModel))

    def __post_init__(self) -> None:
        if not self.elo0 < self.elo1:
            raise ValueError(f"elo0 must be below elo1, not {self.elo0:g} and {self.elo1:g}")
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 < value < 0.5:
                raise ValueError(f"{name} is between 0 and 0.5, not {value:g}")

    @property
    def lower(self) -> float:
        """LLR at or below which H0 is accepted."""
        return log(self.beta / (1 - self.alpha))

    @property
    def upper(self) -> float:
        """LLR at or above which H1 is accepted."""
        return log((1 - self.beta) / self.alpha)

    def decide(self, llr: float) -> Decision:
        """Return the decision for an LLR."""
        if llr >= self.upper:
            return "H1"
        return "H0" if llr <= self.lower else "continue"

    def llr(self, tally: Tally) -> float:
        """Return the LLR of the results, from pairs if there are any; 0 without results."""
        sample = tally.sample()
        return float(self.llr_of_counts(sample.counts)) if sample.size else 0.0

    def llr_of_counts(self, counts: ArrayLike) -> Floats:
        """Return the LLR, of shape [...], of histograms.

        counts: of shape [..., 5] (pairs by points 0, ½, 1, 1½, 2) or [..., 3] (games lost, drawn, won).
        Raises ValueError for other shapes.
        """
        histogram = regularised(np.asarray(counts, dtype=np.float64))
        by_size = {len(PAIR_SCORES): (PAIR_SCORES, 2), len(GAME_SCORES): (GAME_SCORES, 1)}
        if histogram.ndim == 0 or histogram.shape[-1] not in by_size:
            raise ValueError(f"a histogram has 3 or 5 bins, not the shape {histogram.shape}")
        values, games = by_size[histogram.shape[-1]]
        scores = np.array(values)
        frequencies = histogram / histogram.sum(axis=-1, keepdims=True)
        if self.model == "logistic":
            null = likeliest_with_mean(frequencies, scores, score_of_elo(self.elo0))
            alternative = likeliest_with_mean(frequencies, scores, score_of_elo(self.elo1))
        else:
            # The standard deviation of a pair's mean score is that of a game divided by √2.
            t0, t1 = (sqrt(games) * elo / NORMALISED_ELO for elo in (self.elo0, self.elo1))
            null = likeliest_with_t_value(frequencies, scores, 0.5, t0)
            alternative = likeliest_with_t_value(frequencies, scores, 0.5, t1)
        ratio: Floats = (histogram * np.log(alternative / null)).sum(axis=-1)
        return ratio

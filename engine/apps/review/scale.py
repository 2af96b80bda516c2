# SPDX-License-Identifier: GPL-3.0-or-later
"""The scale of reviews: win, draw and loss of games between strong players, and pawns.

A network's raw probabilities are flat: they are those of the fast games that it learned from. Here their
logit s becomes a win with the probability 1 / (1 + exp((CENTRE - s) / WIDTH)), and a loss by symmetry. That
is the form of Stockfish's model, which fits the results of its games of 60 s + 0.6 s. The constants fit its
values (`benchmarks.strength.review_marks --half 0`). One pawn is the advantage that wins half of the games.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

WDL = tuple[float, float, float]

CENTRE, WIDTH = 0.73, 0.22

MOST_PAWNS = 20.0


@dataclass(frozen=True, slots=True)
class Score:
    """What a side can expect. wdl: win, draw and loss on this scale. pawns: its advantage."""

    wdl: WDL
    pawns: float

    @property
    def expected(self) -> float:
        return expected(self.wdl)

    def turned(self) -> Score:
        """Return the other side's score."""
        win, draw, loss = self.wdl
        return Score((loss, draw, win), -self.pawns)

    @classmethod
    def of(cls, wdl: WDL) -> Score:
        """Return the score of the probabilities of a search. Certain results stay."""
        if max(wdl) >= 1:
            return cls(wdl, MOST_PAWNS * (wdl[0] - wdl[2]))
        share = min(1 - 1e-6, max(1e-6, expected(wdl)))
        strength = log(share / (1 - share))
        win, loss = (round(_logistic((each - CENTRE) / WIDTH), 4) for each in (strength, -strength))
        return cls((win, round(1 - win - loss, 4), loss), round(strength / CENTRE, 2))


def expected(wdl: WDL) -> float:
    """Return the expected score of win, draw and loss."""
    return wdl[0] + wdl[1] / 2


def _logistic(value: float) -> float:
    return 1 / (1 + exp(-max(-50.0, min(50.0, value))))

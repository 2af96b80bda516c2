# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of `score cp`: the values of the option ScoreType, with lc0's names.

wl: win minus loss, -1 to 1. d: probability of a draw. Both are for the side to move. q: wl including the
value of a draw (DrawScore). The constants are those of lc0 0.32 (`Search::SendUciInfo` in
src/search/classic/search.cc), so that resignation rules made for lc0 work unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, tan


def centipawn(wl: float, d: float, q: float) -> float:
    """Return lc0's `centipawn`: 14 for ten percent more wins than losses, 12,780 for a certain win."""
    return 90 * tan(1.5637541897 * _within(wl))


def centipawn_with_drawscore(wl: float, d: float, q: float) -> float:
    """Return the same function of q, which the search maximises."""
    return 90 * tan(1.5637541897 * _within(q))


def centipawn_2019(wl: float, d: float, q: float) -> float:
    """Return lc0's scale of 2019: 29 for ten percent, nearly linear, 12,800 for a certain win."""
    return 295 * wl / (1 - 0.976953126 * wl**14)


def centipawn_2018(wl: float, d: float, q: float) -> float:
    """Return lc0's scale of 2018: 45 for ten percent, 12,800 for a certain win."""
    return 290.680623072 * tan(1.548090806 * _within(wl))


def win_percentage(wl: float, d: float, q: float) -> float:
    """Return the expected result in percent, times 100."""
    return 5000 * wl + 5000


def q_value(wl: float, d: float, q: float) -> float:
    """Return lc0's `Q`: q times 10,000."""
    return 10000 * q


def win_minus_loss(wl: float, d: float, q: float) -> float:
    """Return lc0's `W-L`: wl times 10,000."""
    return 10000 * wl


def wdl_mu(wl: float, d: float, q: float) -> float:
    """Return lc0's `WDL_mu`: 100 μ; at 100 a win is as likely as not.

    μ is the centre of a logistic distribution whose tails beyond 1 and -1 are win and loss. If the tails are
    too thin for an estimate, the score is 45 tan(1.56728071628 wl), as long as that is larger.
    """
    fallback = 45 * tan(1.56728071628 * _within(wl))
    win, loss = (1 + wl - d) / 2, (1 - wl - d) / 2
    if not all(1e-4 < share < 1 - 1e-4 for share in (win, d, loss)) or abs(wl) + d >= 0.996:
        return fallback
    a, b = log(1 / loss - 1), log(1 / win - 1)
    mu = 100 * (a - b) / (a + b)
    return mu if abs(mu) < 100 or abs(fallback) < abs(mu) else fallback


SCORES: dict[str, Callable[[float, float, float], float]] = {
    "centipawn": centipawn,
    "centipawn_with_drawscore": centipawn_with_drawscore,
    "centipawn_2019": centipawn_2019,
    "centipawn_2018": centipawn_2018,
    "win_percentage": win_percentage,
    "Q": q_value,
    "W-L": win_minus_loss,
    "WDL_mu": wdl_mu,
}
"""The function of wl, d and q for each ScoreType."""

BOUNDED_SCORES = frozenset({"win_percentage", "Q", "W-L"})
"""ScoreTypes with a fixed range, which are not centipawns."""


def thousandths(wdl: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return win, draw and loss as integers that add up to 1000."""
    win, loss = (min(1000, max(0, round(1000 * share))) for share in (wdl[0], wdl[2]))
    loss = min(loss, 1000 - win)
    return win, 1000 - win - loss, loss


def _within(value: float) -> float:
    return max(-1.0, min(1.0, value))

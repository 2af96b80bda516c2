# SPDX-License-Identifier: GPL-3.0-or-later
"""Contempt: adjust values to the strength of both sides for the search, and undo that for display.

Win and loss are the tails beyond 1 and -1 of a logistic distribution with centre μ and scale s
(engine/core/tree/wdl_rescale.h). The scale, and with it the draw rate, depends on the strength of
the players. An advantage in strength moves the centre. The options have lc0's names and meaning;
the models are those of its `AccurateWDLRescaleParams` and `SimplifiedWDLRescaleParams`
(src/search/classic/params.cc).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cosh, exp, log, log1p, sqrt
from typing import TYPE_CHECKING

from engine.search.report import Line

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.limits import Limits

PER_ELO = log(10) / 200
"""Eight times the slope of the expected result over Elo, ln(10) / 1600."""

CERTAIN = 1e-4
"""Probabilities closer than this to 0 or 1 are not adjusted."""

_WIDEST, _SLOPE, _OFFSET = 15.0, 425.0, 6.75
"""The scale as a function of Elo: 1 / (1 / 15 + exp(Elo / 425 - 6.75)), lc0's fit to Stockfish's levels."""

_SOFTNESS, _MIDPOINT = 250.0, 2737.0
"""Conversion from Elo to the fit's unit: Elo of game pairs from unbalanced openings."""


@dataclass(frozen=True, slots=True)
class Contempt:
    """How a search adjusts the network's values. The default leaves them unchanged.

    ratio: our scale over the network's. shift: of the centre, in units of the squared scale; positive if
    White is the stronger side. max_scale: upper limit of the scale. objectivity: share of the shift that is
    removed from displayed values.
    """

    ratio: float = 1.0
    shift: float = 0.0
    max_scale: float = 1.4
    objectivity: float = 1.0

    @classmethod
    def of(cls, options: Options, turn: str, limits: Limits) -> Contempt:
        """Return the contempt for a search with "white" or "black" to move."""
        ratio, shift = rescaling(options)
        side = {
            "play": None if limits.unbounded else turn,
            "white_side_analysis": "white",
            "black_side_analysis": "black",
            "disable": None,
        }[options.contempt_mode]
        sign = 0.0 if side is None else 1.0 if side == "white" else -1.0
        return cls(ratio, sign * shift, options.wdl_max_s, options.wdl_eval_objectivity)

    def shown(self, line: Line, turn: str) -> Line:
        """Return a line for display, without the advantage that the search assumes."""
        shift = self.objectivity * (self.shift if turn == "white" else -self.shift)
        win, draw, loss = line.wdl
        if not shift or not all(CERTAIN < share < 1 - CERTAIN for share in line.wdl):
            return line
        to_win, to_loss = log(1 / win - 1), log(1 / loss - 1)
        scale = 2 / (to_win + to_loss)
        before = min(scale / self.ratio, self.max_scale)
        centre = (to_loss - to_win) / (to_loss + to_win) - before * before * shift
        win, loss = 1 / (1 + exp((1 - centre) / scale)), 1 / (1 + exp((1 + centre) / scale))
        draw = max(0.0, 1 - win - loss)
        # q also contains the value of a draw, which changes with the draw rate.
        worth = (line.q - (line.wdl[0] - line.wdl[2])) / line.wdl[1]
        return replace(line, q=win - loss + worth * draw, wdl=(win, draw, loss))


NO_CONTEMPT = Contempt()


def advantage(options: Options) -> float:
    """Return our assumed Elo advantage: from Contempt, in general or for UCI_Opponent, else UCI_RatingAdv."""
    from engine.options.contempt import parse_contempt

    elo = options.rating_advantage
    for name, value in parse_contempt(options.contempt):
        if not name:
            elo = value
        elif name.lower() in options.opponent.lower():
            elo = value
            break
    most = options.contempt_max_value
    return max(-most, min(most, elo))


def rescaling(options: Options) -> tuple[float, float]:
    """Return the ratio of the scales, and our shift of the centre in units of the squared scale."""
    elo = advantage(options)
    reference = _scale_of_draw_rate(options.wdl_draw_rate_reference)
    if options.wdl_calibration_elo:
        ours = _pair_elo(options.wdl_calibration_elo)
        theirs = _pair_elo(options.wdl_calibration_elo - elo)
        target = sqrt((_scale_of_elo(ours) ** 2 + _scale_of_elo(theirs) ** 2) / 2)
        shift = (_centre_of_elo(ours) - _centre_of_elo(theirs)) / reference**2
    else:
        rate = options.wdl_draw_rate_target
        target = _scale_of_draw_rate(max(rate, 0.001)) if rate else reference
        bias = options.wdl_book_exit_bias
        slopes = sum(1 / cosh(0.5 * (1 + sign * bias) / target) ** 2 for sign in (-1, 1))
        shift = target / reference**2 / slopes * PER_ELO * elo
    return target / reference, shift * options.wdl_contempt_attenuation


def _scale_of_draw_rate(rate: float) -> float:
    """Return the scale at which an equal position is drawn with this probability."""
    return 1 / log((1 + rate) / (1 - rate))


def _pair_elo(elo: float) -> float:
    return elo + 0.5 * _SOFTNESS * log1p(exp((_MIDPOINT - elo) / _SOFTNESS))


def _scale_of_elo(elo: float) -> float:
    return 1 / (1 / _WIDEST + exp(elo / _SLOPE - _OFFSET))


def _centre_of_elo(elo: float) -> float:
    """Return the integral of the scale over Elo, in units of PER_ELO."""
    return -PER_ELO * _WIDEST * _SLOPE * log1p(exp(_OFFSET - elo / _SLOPE) / _WIDEST)

# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's `legacy` manager: an even share of the clock, plus the time saved by the previous move."""

from __future__ import annotations

from engine.search.time.budget import Situation, Spent, TimeBudget
from engine.search.time.game_length import median_moves
from engine.settings.time_managers import LegacyParameters

BOOK_PLIES = 12
"""Maximum opening plies that lengthen the first move."""

WORTH_SLOWING_MS = 200.0
"""Budget from which on slowmover lengthens it: below, smart pruning could not save the time again."""


class LegacyManager:
    """Divide the clock by the median of the moves to come, with a bonus for the first move."""

    def __init__(self, parameters: LegacyParameters) -> None:
        self._parameters = parameters
        self._saved_ms = 0.0
        self._first = True

    def budget(self, situation: Situation) -> TimeBudget:
        parameters = self._parameters
        moves = median_moves(situation.ply / 2, parameters.midpoint_move, parameters.steepness)
        if situation.moves_to_go:
            moves = min(moves, float(situation.moves_to_go))
        increments = situation.increment_ms * (moves - 1)
        total = max(0.0, situation.remaining_ms + increments - situation.reserve_ms)
        at_once = 0.0
        if self._saved_ms > 0:
            total = max(0.0, total - self._saved_ms)
            at_once = self._saved_ms * parameters.immediate_use
            self._saved_ms -= at_once
        time = total / moves
        if self._first:
            self._first = False
            time *= 1 + parameters.first_move_bonus
            time += total / moves * parameters.book_ply_bonus * min(BOOK_PLIES, situation.ply)
        if parameters.slowmover < 1 or time * parameters.slowmover > WORTH_SLOWING_MS:
            self._saved_ms -= time * (parameters.slowmover - 1)
            time *= parameters.slowmover
        time = max(0.0, min(time + at_once, situation.remaining_ms - situation.reserve_ms))
        return TimeBudget(time, time)

    def done(self, budget: TimeBudget, spent: Spent) -> None:
        self._saved_ms += budget.soft_ms - spent.time_ms

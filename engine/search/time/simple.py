# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's `simple` manager: a percentage of the clock that grows with the ply, a share of the increment, and
the time saved by the previous move."""

from __future__ import annotations

from engine.search.time.budget import Situation, Spent, TimeBudget
from engine.settings.time_managers import SimpleParameters


class SimpleManager:
    """See the module."""

    def __init__(self, parameters: SimpleParameters) -> None:
        self._parameters = parameters
        self._saved_ms = 0.0
        self._first = True

    def budget(self, situation: Situation) -> TimeBudget:
        parameters = self._parameters
        available = max(0.0, situation.remaining_ms - situation.reserve_ms)
        if available <= 0:
            return TimeBudget(0.0, 0.0)
        share = (parameters.base_pct + situation.ply * parameters.ply_pct) / 100
        share += parameters.time_factor * situation.increment_ms / situation.remaining_ms
        time = available * share
        if self._first:
            self._first = False
            time *= 1 + parameters.opening_bonus_pct / 100
        time = min(available, time + self._saved_ms)
        return TimeBudget(time, time)

    def done(self, budget: TimeBudget, spent: Spent) -> None:
        self._saved_ms = max(0.0, budget.soft_ms - spent.time_ms)

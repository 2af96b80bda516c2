# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's `alphazero` manager: the same percentage of the clock for every move."""

from __future__ import annotations

from engine.search.time.budget import Situation, Spent, TimeBudget
from engine.settings.time_managers import AlphazeroParameters


class AlphazeroManager:
    """See the module."""

    def __init__(self, parameters: AlphazeroParameters) -> None:
        self._share = parameters.alphazero_time_pct / 100

    def budget(self, situation: Situation) -> TimeBudget:
        time = max(0.0, situation.remaining_ms - situation.reserve_ms) * self._share
        return TimeBudget(time, time)

    def done(self, budget: TimeBudget, spent: Spent) -> None:
        """Do nothing: this manager learns nothing."""

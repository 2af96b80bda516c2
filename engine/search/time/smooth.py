# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's `smooth` manager: plan visits, including those that the tree keeps, and save for difficult moves.

A part of each move's time goes to savings (lc0: piggybank), for moves with an unsettled choice. lc0 uses them
if a trend of the visits predicts another best move. Here they are used if the best value and the most visits
disagree, as with the other managers (engine/search/stopping.py). So the parameters of the trend are missing.
"""

from __future__ import annotations

from math import pow

from engine.search.time.budget import Situation, Spent, TimeBudget
from engine.search.time.game_length import median_moves
from engine.settings.time_managers import SmoothParameters

FIRST_SPEED = 20.0
"""Visits per millisecond before any search."""


class SmoothManager:
    """See the module."""

    def __init__(self, parameters: SmoothParameters) -> None:
        self._parameters = parameters
        self._reuse = parameters.init_tree_reuse
        self._use = parameters.init_timeuse
        self._per_ms = FIRST_SPEED
        self._savings_ms: float | None = None
        self._mean_ms = 0.0  # mean of the moves to come at the last budget
        self._last_visits = 0
        self._last_ms = 0.0

    def budget(self, situation: Situation) -> TimeBudget:
        parameters = self._parameters
        remaining, reserve = situation.remaining_ms, situation.reserve_ms
        if self._savings_ms is None:
            self._savings_ms = max(0.0, remaining * parameters.init_piggybank)
        self._learn_reuse(situation.kept_visits)
        moves = median_moves(situation.ply / 2, parameters.midpoint, parameters.steepness)
        if situation.moves_to_go:
            moves = min(moves, float(situation.moves_to_go))
        total = max(0.0, remaining + situation.increment_ms * (moves - 1) - reserve)
        most_saved = parameters.max_piggybank_moves * total / moves
        savings = min(self._savings_ms, most_saved)
        self._mean_ms = max(0.0, total - savings) / moves
        # A part of the tree is kept, so it may become larger than one move's time allows.
        effort = max(0.0, self._mean_ms / (1 - self._reuse) - situation.kept_visits / self._per_ms)
        saved = min(most_saved - savings, effort * parameters.per_move_piggybank)
        soft = min((effort - saved) / self._use, remaining * parameters.max_move_budget, remaining - reserve)
        soft = max(0.0, soft)
        hard = soft + max(0.0, min(savings * parameters.max_piggybank_use, remaining - reserve - soft))
        self._savings_ms = savings + saved
        return TimeBudget(soft, hard)

    def done(self, budget: TimeBudget, spent: Spent) -> None:
        share = spent.time_ms / budget.soft_ms if budget.soft_ms > 0 else 1.0
        if share > 1 and self._savings_ms is not None:
            self._savings_ms = max(0.0, self._savings_ms - (spent.time_ms - budget.soft_ms))
        parameters = self._parameters
        moves = spent.time_ms / self._mean_ms if self._mean_ms > 0 else 0.0
        self._use = _towards(self._use, min(1.0, share), moves / parameters.timeuse_update_rate)
        self._use = max(parameters.min_timeuse, self._use)
        self._last_visits, self._last_ms = spent.visits, spent.time_ms
        if spent.playouts > 0 and spent.searched_ms > 0:
            self._per_ms = spent.playouts / spent.searched_ms

    def _learn_reuse(self, kept_visits: int) -> None:
        if not self._last_visits or self._mean_ms <= 0:
            return
        parameters = self._parameters
        moves = self._last_ms / self._mean_ms
        reuse = _towards(
            self._reuse, kept_visits / self._last_visits, moves / parameters.tree_reuse_update_rate
        )
        self._reuse = min(parameters.max_tree_reuse, reuse)


def _towards(old: float, new: float, halvings: float) -> float:
    """Return an exponential mean: the distance to the new value is halved `halvings` times."""
    return new + (old - new) * pow(0.5, halvings)

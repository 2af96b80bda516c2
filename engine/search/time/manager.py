# SPDX-License-Identifier: GPL-3.0-or-later
"""The time manager: trees of equal size for all moves that the game is expected to have.

The size of a move's tree includes the visits kept from the previous search. Equal sizes maximise the sum of
log(visits). So a move gets less time the more visits were kept, and the first move, without any, gets more.

Searches end early (smart pruning) or exceed their budget (an unsettled choice). The share of recent budgets
that they used scales the next ones. So all later moves spend the time saved, and none is left at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pow

from engine.search.time.budget import Situation, Spent, TimeBudget

NEGLIGIBLE = 1e-3
"""Moves less probable than this are not counted."""


def survival(moves: float, midpoint: float, steepness: float) -> float:
    """Return the share of games that last longer than N moves. midpoint: median length in moves. steepness:
    concentration of lengths around it."""
    return 1 / (1 + pow(max(0.0, moves) / midpoint, steepness))


def expected_moves(played: float, most: int | None, midpoint: float, steepness: float) -> float:
    """Return the mean number of moves to come, the next one included; at least 1.

    A game lasts longer than x moves with probability 1 / (1 + (x / midpoint)^steepness), a log-logistic
    distribution. lc0's managers use the median of the rest; ours uses the mean. A player maximises the sum of
    log(time) over the game's moves, and loses the time left at its end. Then the best share of the clock per
    move is 1 / (expected moves). played: moves so far. most: moves to the next time control; None counts all.
    """
    reached = survival(played, midpoint, steepness)
    expected, chance, ahead = 0.0, 1.0, 0
    while chance > NEGLIGIBLE and (most is None or ahead < most):
        expected += chance
        ahead += 1
        chance = survival(played + ahead, midpoint, steepness) / reached
    return max(1.0, expected)


MIDPOINT, STEEPNESS = 47.0, 7.0
"""Median length of a game in moves, and the concentration of lengths around it."""

FIRST_MOVE = 2.0
"""Maximum time of a move without a tree, as a multiple of the mean move's."""

EXTENSION = 3.0
"""Maximum time of an unsettled move, as a multiple of its budget."""

FIRST_REUSE, MOST_REUSE = 0.5, 0.9
"""Share of a tree's visits that the next search keeps: initial value and maximum."""

FIRST_USE, LEAST_USE, MOST_USE = 0.8, 0.5, 3.0
"""Share of a budget that is used: initial value, minimum and maximum."""

MEMORY = 8.0
"""Moves over which both shares are averaged."""

LEAST_MOVES = 15.0
"""Minimum number of moves left to plan for, so that a long game without increment keeps time."""

INCREMENT_AT_ONCE = 0.4
"""Share of the increment that a move may use in addition to its share of the clock. Otherwise a short clock
with a long increment would accumulate increments."""

LEAST_TIME = 0.6
"""Minimum time of a move, however much of the tree was kept, as a multiple of the mean move's."""

TELLING_VISITS = 50
"""Minimum visits of a search for measuring speed and reuse."""


@dataclass(slots=True)
class _Search:
    """The previous search: final visits of its root, and playouts per millisecond (0: unknown)."""

    visits: int = 0
    per_ms: float = 0.0


class TimeManager:
    """Divide the clock of one game. `budget` and `done` are called alternately, once per move."""

    def __init__(self) -> None:
        self._reuse = FIRST_REUSE
        self._use = FIRST_USE
        self._last = _Search()

    def budget(self, situation: Situation) -> TimeBudget:
        """Return the time for the next move."""
        usable = situation.usable_ms
        if usable <= 0:
            return TimeBudget(0.0, 0.0)
        moves_to_go = situation.moves_to_go
        moves = expected_moves(situation.ply / 2, moves_to_go, MIDPOINT, STEEPNESS)
        if not moves_to_go:
            moves = max(moves, LEAST_MOVES)
        mean = max(0.0, usable + self._gain_per_move(situation) * (moves - 1)) / moves
        soft = self._effort(situation, mean) / self._use
        coming = min(INCREMENT_AT_ONCE * situation.increment_ms, usable)
        soft = min(soft, usable * _largest_share(moves_to_go) + coming)
        hard = min(soft * EXTENSION, usable * min(0.8, 2 * _largest_share(moves_to_go)) + coming)
        return TimeBudget(soft, max(soft, hard))

    def done(self, budget: TimeBudget, spent: Spent) -> None:
        """Record the use of a budget. budget: the granted one, which may be less than requested."""
        if budget.soft_ms > 0:
            self._use += (min(3.0, spent.time_ms / budget.soft_ms) - self._use) / MEMORY
            self._use = min(MOST_USE, max(LEAST_USE, self._use))
        self._last.visits = spent.visits
        if spent.playouts >= TELLING_VISITS and spent.searched_ms > 0:
            self._last.per_ms = spent.playouts / spent.searched_ms

    def _effort(self, situation: Situation, mean_ms: float) -> float:
        """Return the milliseconds that the move should use. mean_ms: mean time of the moves to come."""
        last = self._last
        kept_ms = situation.kept_visits / last.per_ms if last.per_ms > 0 else 0.0
        if last.visits >= TELLING_VISITS:
            self._reuse += (min(MOST_REUSE, situation.kept_visits / last.visits) - self._reuse) / MEMORY
        missing_ms = mean_ms / (1 - self._reuse) - kept_ms
        return min(FIRST_MOVE * mean_ms, max(LEAST_TIME * mean_ms, missing_ms))

    @staticmethod
    def _gain_per_move(situation: Situation) -> float:
        """Return the clock's gain per move to come, in milliseconds. Close to the reserve the increment is
        saved, too, because unseen delays may be as long."""
        reserve = situation.reserve_ms
        saved = min(1.0, situation.usable_ms / (2 * reserve)) if reserve > 0 else 1.0
        return max(0.0, situation.increment_ms * saved - situation.delay_ms)


def _largest_share(moves_to_go: int | None) -> float:
    """Return the maximum share of the clock for a budget. The last move before a time control may use nearly
    all, but the increment arrives only after it."""
    if moves_to_go is None or moves_to_go < 1:
        return 0.2
    return 0.8 if moves_to_go == 1 else min(0.8, max(0.2, 1.5 / moves_to_go))

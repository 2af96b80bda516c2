# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs and outputs of the time manager, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Situation:
    """The clock and the tree at the start of a move. Times are milliseconds.

    remaining_ms: negative if a GUI lets a clock run out. moves_to_go: moves to the next time control, this
    one included; None if there is none. ply: half-moves played. reserve_ms: for delays that the clock counts
    but the search does not see. delay_ms: their mean per move. kept_visits: root visits before the search.
    """

    remaining_ms: float
    increment_ms: float = 0.0
    moves_to_go: int | None = None
    ply: int = 0
    reserve_ms: float = 0.0
    delay_ms: float = 0.0
    kept_visits: int = 0

    @property
    def usable_ms(self) -> float:
        """The clock without the reserve, but at least a fifth of the excess over half of the reserve. So the
        engine still thinks if the clock is hardly more than the reserve."""
        beyond_half = max(0.0, self.remaining_ms - self.reserve_ms / 2)
        return max(self.remaining_ms - self.reserve_ms, 0.2 * beyond_half)


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Milliseconds for one move. soft_ms: stop unless the choice is unsettled. hard_ms: always stop."""

    soft_ms: float
    hard_ms: float


@dataclass(frozen=True, slots=True)
class Spent:
    """The use of a budget. time_ms: from the start of the clock to the move. searched_ms: part of it in which
    the evaluator was available. visits: final visits of the root. playouts: those of this search."""

    time_ms: float
    searched_ms: float
    visits: int
    playouts: int

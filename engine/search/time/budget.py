# SPDX-License-Identifier: GPL-3.0-or-later
"""What a time manager is asked, what it answers, and what it gets afterwards: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Situation:
    """The clock and the tree when a move begins, times in milliseconds.

    remaining_ms may be negative: some GUIs let a clock run out. moves_to_go: moves to the next time control,
    this one included; None if the game has none. ply: half-moves played. reserve_ms: what is kept back for
    delays that the clock counts and the search does not see. delay_ms: what they cost each move on average.
    kept_visits: those of the root before the search has begun.
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
        """The clock without the reserve. A clock that is hardly more than the reserve still has a fifth of
        what exceeds half of it, so that it is not down to moves without any thought."""
        beyond_half = max(0.0, self.remaining_ms - self.reserve_ms / 2)
        return max(self.remaining_ms - self.reserve_ms, 0.2 * beyond_half)


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Milliseconds for one move. soft_ms: stop here unless the choice of move is unsettled; hard_ms: stop."""

    soft_ms: float
    hard_ms: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What became of a budget. time_ms: from the start of the clock to the move. searched_ms: of it, what the
    evaluator was at work. visits: of the root in the end. playouts: those of this search."""

    time_ms: float
    searched_ms: float
    visits: int
    playouts: int


class TimeManager(Protocol):
    """Shares out the clock of one game; `budget` and `done` are called in turns, once for each move."""

    def budget(self, situation: Situation) -> TimeBudget:
        """How long to think about the next move."""
        ...

    def done(self, budget: TimeBudget, spent: Spent) -> None:
        """The move has been chosen. budget: what was granted, which may be less than was asked for."""
        ...

# SPDX-License-Identifier: GPL-3.0-or-later
"""One player's clock during a game: its time manager and the measured delays."""

from __future__ import annotations

from dataclasses import dataclass

from engine.options import Options
from engine.search.time.budget import Situation, Spent, TimeBudget
from engine.search.time.manager import TimeManager

FORGOTTEN = 0.9
"""Factor of the longest delay per move: old delays fade."""

MEMORY = 8.0
"""Moves over which the cost of a move is averaged."""

LONGEST_MS = 2000.0
"""Longer delays are ignored: the computer slept, or someone set the clock by hand."""


class Lateness:
    """Measured delays in milliseconds.

    longest_ms: longest recent delay. delay_ms: mean cost of a move on the clock, beyond its budget.
    """

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.delay_ms = 0.0

    def record_lateness(self, late_ms: float) -> None:
        """Record the delay of a wait or of the end of a search."""
        if late_ms <= LONGEST_MS:
            self.longest_ms = max(self.longest_ms, late_ms)

    def moved(self, beyond_ms: float) -> None:
        """Record the clock's loss since the last move, beyond its budget."""
        if beyond_ms > LONGEST_MS:
            return
        beyond_ms = max(0.0, beyond_ms)
        self.delay_ms += (beyond_ms - self.delay_ms) / MEMORY
        self.longest_ms = max(self.longest_ms * FORGOTTEN, beyond_ms)

    def reserve_ms(self, overhead_ms: float) -> float:
        """Return the reserve: overhead_ms, and more after a delay longer than half of it."""
        return overhead_ms + max(0.0, self.longest_ms - overhead_ms / 2)


MOST = 0.8
"""Maximum share of the usable clock for a move, whatever Slowmover requests."""

FIRST_EVALUATION, FIRST_EVALUATION_LEAST = 0.3, 0.025
"""Share of the clock, less twice the reserve, to wait for the first evaluation; minimum share of the whole
clock. A move without an evaluation is as good as lost, but where one takes longer than the increment, waiting
would run the clock down to what a stall of the machine takes."""

MOVES_TO_PAY_FOR = 150
"""Moves whose delays are reserved in advance, if there is no time control. With 40 and 1 to 4 ms per move, a
clock of 1 s without increment ran out at ply 200 to 300."""


@dataclass(slots=True)
class _Move:
    """The last move: its clock, its budget, and the time it took (None during the search)."""

    situation: Situation
    budget: TimeBudget
    spent_ms: float | None = None


class TimeKeeper:
    """Ask the time manager for budgets, and measure their use and the delays.

    playouts_per_second: of the last search; 0 before the first. first_evaluation_ms: longest wait of the
    current search for its first evaluation. One thread at a time may use it.
    """

    def __init__(self) -> None:
        self.lateness = Lateness()
        self.playouts_per_second = 0.0
        self.first_evaluation_ms = 0.0
        self._manager = TimeManager()
        self._last: _Move | None = None

    def new_game(self) -> None:
        """Reset the manager. Measurements of the machine are kept."""
        self._manager = TimeManager()
        self._last = None

    def budget(
        self,
        options: Options,
        *,
        remaining_ms: float,
        increment_ms: float = 0.0,
        moves_to_go: int | None = None,
        ply: int = 0,
        kept_visits: int = 0,
    ) -> TimeBudget:
        """Return the time for the next move. The arguments are those of Situation."""
        last = self._last
        if last is not None and ply <= last.situation.ply:
            self.new_game()
        elif last is not None:
            self._compare_clocks(last, remaining_ms, moves_to_go, ply)
        situation = Situation(
            remaining_ms,
            increment_ms,
            moves_to_go if moves_to_go and moves_to_go > 0 else None,
            ply,
            self.lateness.reserve_ms(options.move_overhead_ms) + self._unpaid_ms(increment_ms, moves_to_go),
            self.lateness.delay_ms,
            kept_visits,
        )
        wanted = self._manager.budget(situation)
        most = MOST * situation.usable_ms
        soft = max(0.0, min(wanted.soft_ms * options.slowmover, most))
        granted = TimeBudget(soft, max(soft, min(wanted.hard_ms * max(1.0, options.slowmover), most)))
        self._last = _Move(situation, granted)
        share = FIRST_EVALUATION * (remaining_ms - 2 * situation.reserve_ms)
        self.first_evaluation_ms = max(granted.hard_ms, share, FIRST_EVALUATION_LEAST * remaining_ms)
        return granted

    def finished(self, spent: Spent, late_ms: float) -> None:
        """Record the end of a search, with or without a budget. late_ms: its delay, at most 0 if in time."""
        self.lateness.record_lateness(late_ms)
        if spent.searched_ms > 0 and spent.playouts > 0:
            self.playouts_per_second = 1000 * spent.playouts / spent.searched_ms
        last = self._last
        if last is None or last.spent_ms is not None:
            return
        last.spent_ms = spent.time_ms
        self._manager.done(last.budget, spent)

    def _unpaid_ms(self, increment_ms: float, moves_to_go: int | None) -> float:
        """Return the delays of the moves to come that their increments do not cover."""
        moves = moves_to_go - 1 if moves_to_go and moves_to_go > 0 else MOVES_TO_PAY_FOR
        return max(0.0, self.lateness.delay_ms - increment_ms) * moves

    def _compare_clocks(self, last: _Move, remaining_ms: float, moves_to_go: int | None, ply: int) -> None:
        """Measure the delay from the clock's loss beyond the last budget, if the clocks are comparable."""
        before = last.situation
        control_passed = before.moves_to_go is not None and before.moves_to_go - 1 != moves_to_go
        if last.spent_ms is None or ply != before.ply + 2 or control_passed:
            return
        expected = before.remaining_ms - min(last.spent_ms, last.budget.hard_ms) + before.increment_ms
        self.lateness.moved(expected - remaining_ms)

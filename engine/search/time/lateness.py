# SPDX-License-Identifier: GPL-3.0-or-later
"""Delays of this machine, and the cost of a move beyond its budget."""

from __future__ import annotations

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

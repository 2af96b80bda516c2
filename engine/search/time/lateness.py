# SPDX-License-Identifier: GPL-3.0-or-later
"""How late things happen on this machine, and what a move costs that the search does not see."""

from __future__ import annotations

FORGOTTEN = 0.9
"""Of the longest delay seen, what is left of it with each move."""

MEMORY = 8.0
"""Moves over which the unseen cost of a move is averaged."""

LONGEST_MS = 2000.0
"""A longer delay is something else: a computer that slept, a clock that was set by hand."""


class Lateness:
    """Measured delays in milliseconds.

    longest_ms: of what went wrong lately. delay_ms: mean cost of a move besides its search, by the clock.
    """

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.delay_ms = 0.0

    def overslept(self, late_ms: float) -> None:
        """Something came back so much later than it was asked to: a wait, or the end of a search."""
        if late_ms <= LONGEST_MS:
            self.longest_ms = max(self.longest_ms, late_ms)

    def moved(self, unseen_ms: float) -> None:
        """Since the last move the clock has lost so much more than the search took."""
        if unseen_ms > LONGEST_MS:
            return
        unseen_ms = max(0.0, unseen_ms)
        self.delay_ms += (unseen_ms - self.delay_ms) / MEMORY
        self.longest_ms = max(self.longest_ms * FORGOTTEN, unseen_ms)

    def reserve_ms(self, overhead_ms: float) -> float:
        """What to keep back: overhead_ms, and more once a delay was longer than half of it."""
        return overhead_ms + max(0.0, self.longest_ms - overhead_ms / 2)

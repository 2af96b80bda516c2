# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast a search is, without the time in which the evaluator was not there."""

from __future__ import annotations

SILENCE_SECONDS = 0.25
"""An evaluator that says nothing for so long, and for several times as long as usual, is taken for lost."""

UNUSUAL = 4.0
"""How many times as long as usual that is."""

KNOWN_SECONDS = 0.05
"""The speed of the search before counts as much as so many seconds of this one."""

TELLING_PLAYOUTS, TELLING_SECONDS = 32, 0.02
"""Without a search before, the speed is unknown until there are so many playouts and seconds."""


class Pace:
    """Counts playouts and the seconds that they took. All times are perf_counter seconds.

    seconds: from the first evaluation on, in which the evaluator was at work.
    """

    def __init__(self, known_per_second: float = 0.0) -> None:
        """known_per_second: playouts of the search before; 0 if there was none."""
        self.seconds = 0.0
        self._known = known_per_second
        self._first_playouts = 0
        self._playouts = 0
        self._last_progress: float | None = None
        self._usual_gap = 0.0
        self._gaps = 0

    def look(self, now: float, playouts: int) -> None:
        """Note how many playouts the search has made."""
        if playouts == self._playouts:
            return
        self._playouts = playouts
        if self._last_progress is None:
            # The first evaluation may have waited for the evaluator to start: neither it nor its time counts.
            self._first_playouts = playouts
        else:
            gap = now - self._last_progress
            if gap > self._longest_gap:
                gap = self._usual_gap
            else:
                self._gaps += 1
                self._usual_gap += (gap - self._usual_gap) / min(self._gaps, 16)
            self.seconds += gap
        self._last_progress = now

    @property
    def playouts(self) -> int:
        """Those that `seconds` were needed for."""
        return self._playouts - self._first_playouts

    def per_second(self, now: float) -> float | None:
        """Playouts per second; None while nothing can be said, or the evaluator is silent."""
        if self._last_progress is None or now - self._last_progress > self._longest_gap:
            return None
        if self._known > 0:
            return (self.playouts + self._known * KNOWN_SECONDS) / (self.seconds + KNOWN_SECONDS)
        if self.playouts < TELLING_PLAYOUTS or self.seconds < TELLING_SECONDS:
            return None
        return self.playouts / self.seconds

    @property
    def _longest_gap(self) -> float:
        return max(SILENCE_SECONDS, UNUSUAL * self._usual_gap)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of a search, without the time in which the evaluator was unavailable."""

from __future__ import annotations

SILENCE_SECONDS = 0.25
"""Minimum silence after which an evaluator counts as unavailable, if it is also UNUSUAL."""

UNUSUAL = 4.0
"""Minimum silence in units of the usual gap between answers."""

KNOWN_SECONDS = 0.05
"""Weight of the previous search's speed, in seconds of this one."""

TELLING_PLAYOUTS, TELLING_SECONDS = 32, 0.02
"""Without a previous search, minimum playouts and seconds for a speed."""


class Pace:
    """Playouts and the time that they took. All times are perf_counter seconds.

    seconds: time from the first evaluation on in which the evaluator was available.
    """

    def __init__(self, known_per_second: float = 0.0) -> None:
        """known_per_second: playouts per second of the previous search; 0 if there was none."""
        self.seconds = 0.0
        self._known = known_per_second
        self._first_playouts = 0
        self._playouts = 0
        self._last_progress: float | None = None
        self._usual_gap = 0.0
        self._gaps = 0

    def look(self, now: float, playouts: int) -> None:
        """Record the number of playouts so far."""
        if playouts == self._playouts:
            return
        self._playouts = playouts
        if self._last_progress is None:
            # Exclude the first evaluation and its time: it may have waited for the evaluator to start.
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
        """Playouts made in `seconds`."""
        return self._playouts - self._first_playouts

    def per_second(self, now: float) -> float | None:
        """Return playouts per second; None while they are unknown or the evaluator is silent."""
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

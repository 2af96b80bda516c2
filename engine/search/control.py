# SPDX-License-Identifier: GPL-3.0-or-later
"""Control of a running search by other threads."""

from __future__ import annotations

import threading
from time import perf_counter

LOOK_SECONDS = 0.01
"""Interval of checks for what nothing announces: an evaluator that is ready, or `stop`."""


class SearchControl:
    """Stop a search, or notify it that the opponent played the expected move. Thread-safe.

    stopped: `stop` was called. pondering: the opponent is to move, so that no limit applies yet.
    clock_started: time of `ponder_hit` in perf_counter seconds; None before it.
    """

    def __init__(self, *, pondering: bool = False) -> None:
        self.stopped = False
        self.pondering = pondering
        self.clock_started: float | None = None
        self._stop = threading.Event()

    def stop(self) -> None:
        """Stop the search as soon as possible."""
        self.stopped = True
        self._stop.set()

    def ponder_hit(self, at: float | None = None) -> None:
        """Start the clock, because the expected move was played. at: perf_counter seconds (default: now)."""
        self.clock_started = perf_counter() if at is None else at
        self.pondering = False

    def wait(self, seconds: float) -> None:
        """Sleep until `stop`, or for this time."""
        self._stop.wait(seconds)

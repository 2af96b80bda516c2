# SPDX-License-Identifier: GPL-3.0-or-later
"""Control of a running search by other threads."""

from __future__ import annotations

import threading
from time import perf_counter


class SearchControl:
    """Stop a search, or notify it that the opponent played the expected move. Thread-safe."""

    def __init__(self, *, pondering: bool = False) -> None:
        self._stop = threading.Event()
        self._ponder_hit: float | None = None
        self._pondering = pondering

    def stop(self) -> None:
        """Stop the search as soon as possible."""
        self._stop.set()

    def ponder_hit(self, at: float | None = None) -> None:
        """Start the clock, because the expected move was played. at: perf_counter seconds (default: now)."""
        self._ponder_hit = perf_counter() if at is None else at
        self._pondering = False

    @property
    def stopped(self) -> bool:
        """True once `stop` was called."""
        return self._stop.is_set()

    @property
    def pondering(self) -> bool:
        """True while the opponent is to move, so that no limit applies yet."""
        return self._pondering

    @property
    def clock_started(self) -> float | None:
        """Time of `ponder_hit` in perf_counter seconds; None before it."""
        return self._ponder_hit

    def wait(self, seconds: float) -> None:
        """Sleep until `stop`, or for this time."""
        self._stop.wait(seconds)

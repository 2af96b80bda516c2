# SPDX-License-Identifier: GPL-3.0-or-later
"""How other threads steer a search."""

from __future__ import annotations

import threading
from time import perf_counter


class SearchControl:
    """Stops a search, and tells it that the opponent played the expected move. For any thread."""

    def __init__(self, *, pondering: bool = False) -> None:
        self._stop = threading.Event()
        self._ponder_hit: float | None = None
        self._pondering = pondering

    def stop(self) -> None:
        """End the search as soon as possible."""
        self._stop.set()

    def ponder_hit(self, at: float | None = None) -> None:
        """The expected move was played: the clock runs, from `at` (perf_counter seconds) or from now."""
        self._ponder_hit = perf_counter() if at is None else at
        self._pondering = False

    @property
    def stopped(self) -> bool:
        """Whether the search has been told to end."""
        return self._stop.is_set()

    @property
    def pondering(self) -> bool:
        """Whether the opponent is still to move, so that no limit counts yet."""
        return self._pondering

    @property
    def clock_started(self) -> float | None:
        """When `ponder_hit` came, None if it did not."""
        return self._ponder_hit

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until `stop`."""
        self._stop.wait(seconds)

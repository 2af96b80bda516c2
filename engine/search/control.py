# SPDX-License-Identifier: GPL-3.0-or-later
"""Control of a running search by other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter


class SearchControl:
    """Stop a search, or notify it that the opponent played the expected move. Thread-safe.

    stopped: `stop` was called. pondering: the opponent is to move, so that no limit applies yet.
    clock_started: time of `ponder_hit` in perf_counter seconds; None before it. on_change: called after each
    change, by the thread that makes it; wakes the search.
    """

    def __init__(self, *, pondering: bool = False) -> None:
        self.stopped = False
        self.pondering = pondering
        self.clock_started: float | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._changed = threading.Condition()

    def stop(self) -> None:
        """Stop the search as soon as possible."""
        self.stopped = True
        self._notify()

    def ponder_hit(self, at: float | None = None) -> None:
        """Start the clock, because the expected move was played. at: perf_counter seconds (default: now)."""
        self.clock_started = perf_counter() if at is None else at
        self.pondering = False
        self._notify()

    def wait_until_due(self, *, infinite: bool) -> None:
        """Sleep until a best move is due: after `stop`, or `ponder_hit` unless the search is infinite."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or not (infinite or self.pondering))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self.on_change()

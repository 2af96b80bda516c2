# SPDX-License-Identifier: GPL-3.0-or-later
"""The pace of reports during searches: at the requested interval, within a bounded share of the time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine._core import Tree
    from engine.search.loop.driver import Search

LEAST_SECONDS = 0.05
"""Minimum time between two reports of one search."""

FIRST_SECONDS = 0.1

SHARE = 6
"""Inverse of the maximum share of time for reports."""

FIRST_COST = 0.002
"""Assumed seconds per report before any measurement."""

MEMORY = 0.1
"""Weight of the last report in the mean cost."""


class ReportPace:
    """Time slots for the reports of all searches, spaced by their cost. Thread-safe. Times are perf_counter
    seconds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cost = FIRST_COST
        self._free = 0.0

    def place(self, now: float) -> float:
        """Reserve the next free slot for a due report, and return its time, now or later."""
        with self._lock:
            at = max(now, self._free)
            self._free = at + SHARE * self._cost
        return at

    def took(self, seconds: float) -> None:
        """Record the cost of a report."""
        with self._lock:
            self._cost += MEMORY * (seconds - self._cost)


class Reporter:
    """The reports of one search. `look` is for engine.search.loop.search.Observer."""

    def __init__(self, pace: ReportPace, seconds: float, report: Callable[[Search, Tree], None]) -> None:
        """seconds: time between two reports. The first one comes after FIRST_SECONDS at the latest."""
        self.seconds = max(seconds, LEAST_SECONDS)
        self.first_seconds = min(self.seconds, FIRST_SECONDS)
        self._pace = pace
        self._report = report
        self._has_place = False

    def look(self, search: Search, tree: Tree) -> float:
        """Report if the slot is due and there are visits. Return the time of the next call."""
        now = perf_counter()
        at = now if self._has_place else self._pace.place(now)
        self._has_place = at > now
        if self._has_place:
            return at
        if not tree.root_info().visits:
            return now + self.first_seconds
        self._report(search, tree)
        return now + self.seconds

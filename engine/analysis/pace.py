# SPDX-License-Identifier: GPL-3.0-or-later
"""When searches report while they go on: as often as they are asked to, but all reports together take a
bounded share of the time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine._core import Tree
    from engine.search.driver import Search

LEAST_SECONDS = 0.05
"""Between two reports of one search, however often it is to report."""

SHARE = 6
"""Reports take at most one part in so many of the time."""

FIRST_COST = 0.002
"""Seconds that a report is taken to cost until some have been made."""

MEMORY = 0.1
"""Weight of the last report in the mean cost."""


class ReportPace:
    """Places for reports in a row, as far apart as reports are costly: many searches take turns. For any
    thread; times are perf_counter seconds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cost = FIRST_COST
        self._free = 0.0

    def place(self, now: float) -> float:
        """Take the next free place, for a report that is due: its time, now or later."""
        with self._lock:
            at = max(now, self._free)
            self._free = at + SHARE * self._cost
        return at

    def took(self, seconds: float) -> None:
        """Something was spent on a report."""
        with self._lock:
            self._cost += MEMORY * (seconds - self._cost)


class Reporter:
    """The reports of one search. `look` is what an engine.pool.search.Observer does."""

    def __init__(self, pace: ReportPace, seconds: float, report: Callable[[Search, Tree], None]) -> None:
        """seconds: between two reports."""
        self.seconds = max(seconds, LEAST_SECONDS)
        self._pace = pace
        self._report = report
        self._has_place = False

    def look(self, search: Search, tree: Tree) -> float:
        """Report if there is a place and something to say; returns when to look again."""
        now = perf_counter()
        at = now if self._has_place else self._pace.place(now)
        self._has_place = at > now
        if self._has_place:
            return at
        if tree.root_info().visits:
            self._report(search, tree)
        return now + self.seconds

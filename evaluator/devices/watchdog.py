# SPDX-License-Identifier: GPL-3.0-or-later
"""Notices what takes too long: work is watched until it is done, or given up at its time.

A call into a driver that hangs cannot be ended from outside; the thread inside it is lost until the call
returns. What can be done is to answer for it: the watchdog tells its owner, once, of work that is overdue.
Time in which the process waited for a processor, or stood still, does not count: its devices do not hang.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from evaluator.devices.machine import ProcessorWaits
from evaluator.devices.runners import now_ms

log = logging.getLogger("evaluator.watchdog")

LATE_MS = 500.0
"""A watchdog that itself runs later than it wanted by more than this was not the only one that stood still
(a stopped process, a machine that swaps): everything watched gets as much longer."""

TICK_MS = 250.0
"""How often a watchdog that watches something looks at the clock: a standstill is known to about this."""

FOR_OTHERS = 1.25
"""Times of a batch's patience after which it is answered anyway: the rest is for another device."""

W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long devices are waited for.

    hang_factor, hang_s: a batch is given up after hang_factor times its expected time and hang_s seconds.
    retry_s: seconds until a device that is left out is tried again. open_s: seconds in which a backend must
    have opened.
    """

    hang_factor: float = 8.0
    hang_s: float = 4.0
    retry_s: float = 30.0
    open_s: float = 300.0

    def batch_ms(self, expected_ms: float) -> float:
        """The most milliseconds that a batch may take."""
        return self.hang_factor * expected_ms + 1000 * self.hang_s

    def answer_ms(self, expected_ms: float) -> float:
        """The most milliseconds until what a batch was to evaluate is answered, by whatever device or with an
        error: ten times what is expected and five seconds, unless told otherwise."""
        return FOR_OTHERS * self.batch_ms(expected_ms)


class Watchdog(Generic[W]):
    """Watches pieces of work of type W, each named once.

    overdue: called with the lock held, from the watchdog's thread, for each piece of work that is not done at
    its time. waits: counts how long the process waits for a processor. All methods are called with the lock
    held.
    """

    def __init__(
        self,
        lock: threading.RLock,
        overdue: Callable[[W], None],
        waits: Callable[[], ProcessorWaits] = ProcessorWaits,
    ) -> None:
        self._overdue = overdue
        self._new_waits = waits
        self._waits: ProcessorWaits | None = None
        """Only while something is watched for longer than a tick: to read it takes a millisecond."""
        self._ticked: set[W] = set()
        """What was watched at the last look at the clock."""
        self._news = threading.Condition(lock)
        self._due_ms: dict[W, float] = {}
        self._wakes_ms = float("inf")
        self._used = False
        """Whether something was watched since the last look at the clock."""
        self._thread: threading.Thread | None = None
        self._stopping = False

    def watch(self, work: W, due_ms: float) -> None:
        """Begin to watch. due_ms: when it is given up, on the clock of now_ms."""
        self._due_ms[work] = due_ms
        self._used = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        elif due_ms < self._wakes_ms:
            self._news.notify()

    def done(self, work: W) -> bool:
        """Stop to watch; False if it has been given up before."""
        return self._due_ms.pop(work, None) is not None

    def __contains__(self, work: W) -> bool:
        """Whether it is being watched: neither done nor given up."""
        return work in self._due_ms

    def stop(self) -> None:
        """End the thread. What is watched then is never told to be overdue."""
        self._stopping = True
        self._news.notify()

    def _run(self) -> None:
        with self._news:
            while not self._stopping:
                now = now_ms()
                due_ms = min(self._due_ms.values(), default=float("inf"))
                if due_ms > now:
                    # Short work that follows short work must not wake this thread each time.
                    ticks = self._used or bool(self._due_ms)
                    self._used = False
                    self._wakes_ms = min(due_ms, now + TICK_MS) if ticks else float("inf")
                    self._news.wait((self._wakes_ms - now) / 1000 if ticks else None)
                    self._allow_for_lost_time(now_ms() - self._wakes_ms)
                    continue
                for work in [work for work, due_ms in self._due_ms.items() if due_ms <= now]:
                    del self._due_ms[work]
                    try:
                        self._overdue(work)
                    except Exception:  # the others must be watched whatever becomes of this one
                        log.exception("overdue work could not be given up")

    def _allow_for_lost_time(self, late_ms: float) -> None:
        """Give everything watched the time in which the process could not run. late_ms: of this thread."""
        lost_ms = late_ms if late_ms > LATE_MS else 0.0
        if lost_ms:
            log.info("the process stood still for %.1f s", lost_ms / 1000)
        if self._ticked.isdisjoint(self._due_ms):
            self._waits = None
        elif self._waits is None:
            self._waits = self._new_waits()
        else:
            lost_ms = max(lost_ms, self._waits.lost_ms())
        self._ticked = set(self._due_ms)
        for work in self._due_ms:
            self._due_ms[work] += lost_ms

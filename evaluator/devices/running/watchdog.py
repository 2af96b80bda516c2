# SPDX-License-Identifier: GPL-3.0-or-later
"""A watchdog for overdue work.

A hanging driver call cannot be ended from outside; its thread is lost until the call returns. The watchdog
reports overdue work to its owner once, so that the owner can answer for it. Time in which the process waited
for a processor or was stopped does not count, because its devices do not hang then.
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
"""If the watchdog itself runs late by more than this, the whole process was stopped (SIGSTOP, swapping). All
deadlines are then extended by that time."""

TICK_MS = 250.0
"""Interval at which an active watchdog checks the clock: the precision at which a stop is detected."""

FOR_OTHERS = 1.25
"""Multiple of a batch's time limit after which it is answered in any case. The margin is for another
device."""

W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits for devices.

    hang_factor, hang_s: a batch is given up after hang_factor times its expected time plus hang_s seconds.
    retry_s: seconds until an excluded device is probed. open_s: time limit for opening a backend in seconds.
    """

    hang_factor: float = 8.0
    hang_s: float = 4.0
    retry_s: float = 30.0
    open_s: float = 300.0

    def batch_ms(self, expected_ms: float) -> float:
        """Return the time limit of a batch in milliseconds."""
        return self.hang_factor * expected_ms + 1000 * self.hang_s

    def answer_ms(self, expected_ms: float) -> float:
        """Return the time limit for answering a batch, by any device or with an error, in milliseconds. The
        defaults give ten times the expected time plus five seconds."""
        return FOR_OTHERS * (self.hang_factor * expected_ms + 1000 * self.hang_s)


class Watchdog(Generic[W]):
    """Watches pieces of work of type W, each identified by itself.

    overdue: called in the watchdog's thread, with the lock held, for each piece that is not done in time.
    waits: measures how long the process waits for a processor. Call all methods with the lock held.
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
        """Exists only while something is watched for longer than a tick: reading it takes 1 ms."""
        self._ticked: set[W] = set()
        """The work that was watched at the last tick."""
        self._changed = threading.Condition(lock)
        self._due_ms: dict[W, float] = {}
        self._wakes_ms = float("inf")
        self._used = False
        """True if something was watched since the last tick."""
        self._thread: threading.Thread | None = None
        self._stopping = False

    def watch(self, work: W, due_ms: float) -> None:
        """Start watching. due_ms: deadline on the clock of now_ms."""
        self._due_ms[work] = due_ms
        self._used = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        elif due_ms < self._wakes_ms:
            self._changed.notify()

    def done(self, work: W) -> bool:
        """Stop watching. Returns False if the work was given up before."""
        return self._due_ms.pop(work, None) is not None

    def __contains__(self, work: W) -> bool:
        """Return True if it is watched: neither done nor given up."""
        return work in self._due_ms

    def stop(self) -> None:
        """End the thread. Work that is watched then is never reported."""
        self._stopping = True
        self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._stopping:
                now = now_ms()
                due_ms = min(self._due_ms.values(), default=float("inf"))
                if due_ms > now:
                    # A sequence of short pieces must not wake this thread for each of them.
                    ticks = self._used or bool(self._due_ms)
                    self._used = False
                    self._wakes_ms = min(due_ms, now + TICK_MS) if ticks else float("inf")
                    self._changed.wait((self._wakes_ms - now) / 1000 if ticks else None)
                    self._allow_for_lost_time(now_ms() - self._wakes_ms)
                    continue
                for work in [work for work, due_ms in self._due_ms.items() if due_ms <= now]:
                    del self._due_ms[work]
                    try:
                        self._overdue(work)
                    except Exception:  # the other work must still be watched
                        log.exception("overdue work could not be given up")

    def _allow_for_lost_time(self, late_ms: float) -> None:
        """Extend all deadlines by the time in which the process could not run. late_ms: delay of this
        thread."""
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

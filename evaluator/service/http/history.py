# SPDX-License-Identifier: GPL-3.0-or-later
"""The service's recent past, for the page: counters read every few seconds, and what lies between readings.

What runs batches and answers requests counts as it always does and knows nothing of this.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from evaluator.metrics import Histogram, Requests

STEP_S = 2.0
"""Time between two readings."""

STEPS = 300
"""How many are kept: ten minutes."""

RATE_S = 10.0
"""Rates and shares of time are means over this long."""

MINUTE_S = 60.0
"""Percentiles of times and sizes of batches are of this long."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at a moment.

    at: seconds on a monotonic clock. positions, batches: evaluated. busy_ms: for how long each device had a
    batch in flight. requests: answered, by class. sizes: of batches, by network. clients: positions that each
    has had evaluated, by identity.
    """

    at: float
    positions: int
    batches: int
    busy_ms: Mapping[str, float]
    requests: Mapping[str, Requests]
    sizes: Mapping[str, Histogram]
    clients: Mapping[bytes, int]


@dataclass(frozen=True, slots=True)
class Step:
    """What happened between two readings that follow each other."""

    seconds: float
    positions: int
    batches: int


class History:
    """Readings of the last minute, and steps of the last ten. read: gives one, from any thread."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._lock = threading.Lock()
        first = read()
        # Clients may be thousands: they are kept for as long as rates need them only.
        self._last_seconds = deque([first], maxlen=round(RATE_S / STEP_S) + 1)
        self._last_minute = deque([replace(first, clients={})], maxlen=round(MINUTE_S / STEP_S) + 1)
        self._steps: deque[Step] = deque(maxlen=STEPS)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Take a step every STEP_S seconds while the context lasts."""
        end = threading.Event()

        def work() -> None:
            while not end.wait(STEP_S):
                self.step()

        thread = threading.Thread(target=work, name="history", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def step(self) -> None:
        """Read the counters once more."""
        now = self._read()
        with self._lock:
            before = self._last_seconds[-1]
            if now.at <= before.at:
                return
            step = Step(now.at - before.at, now.positions - before.positions, now.batches - before.batches)
            self._steps.append(step)
            self._last_seconds.append(now)
            self._last_minute.append(replace(now, clients={}))

    def steps(self) -> list[Step]:
        """The last ten minutes, the newest last."""
        with self._lock:
            return list(self._steps)

    def seconds_ago(self) -> Reading:
        """The reading that rates begin with, of RATE_S seconds ago or of the start."""
        with self._lock:
            return self._last_seconds[0]

    def minute_ago(self) -> Reading:
        """The reading of a minute ago, or of the start; without clients."""
        with self._lock:
            return self._last_minute[0]

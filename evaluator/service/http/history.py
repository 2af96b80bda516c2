# SPDX-License-Identifier: GPL-3.0-or-later
"""The service's recent history for the status page: counters read every two seconds, and their differences.

The code that runs batches and answers requests is not involved.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from evaluator.devices.metrics import Histogram, RequestTotals
from evaluator.service.connections.transport import Client

STEP_S = 2.0
"""Interval between readings."""

STEPS = 300
"""Number of kept steps: ten minutes."""

RATE_S = 10.0
"""Averaging window of rates and utilisation."""

MINUTE_S = 60.0
"""Window for percentiles of times and for batch sizes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one moment.

    at: seconds of a monotonic clock. positions, batches: evaluated. busy_ms: time with a batch in flight, by
    device. requests: answered, by class. sizes: of batches, by network. clients: evaluated positions by
    client identity.
    """

    at: float
    positions: int
    batches: int
    busy_ms: Mapping[str, float]
    requests: Mapping[str, RequestTotals]
    sizes: Mapping[str, Histogram]
    clients: Mapping[Client, int]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """The difference of two consecutive readings."""

    seconds: float
    positions: int
    batches: int


class History:
    """Readings of the last minute, and steps of the last ten. read: returns a reading, on any thread."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._lock = threading.Lock()
        first = read()
        # There may be thousands of clients, so they are kept only as long as rates need them.
        self._last_seconds = deque([first], maxlen=round(RATE_S / STEP_S) + 1)
        self._last_minute = deque([replace(first, clients={})], maxlen=round(MINUTE_S / STEP_S) + 1)
        self._steps: deque[HistoryStep] = deque(maxlen=STEPS)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context manager that takes a step every STEP_S seconds."""
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
        """Read the counters and append a step."""
        now = self._read()
        with self._lock:
            before = self._last_seconds[-1]
            if now.at <= before.at:
                return
            step = HistoryStep(
                now.at - before.at, now.positions - before.positions, now.batches - before.batches
            )
            self._steps.append(step)
            self._last_seconds.append(now)
            self._last_minute.append(replace(now, clients={}))

    def steps(self) -> list[HistoryStep]:
        """Return the steps of the last ten minutes, newest last."""
        with self._lock:
            return list(self._steps)

    def seconds_ago(self) -> Reading:
        """Return the reading of RATE_S seconds ago, or of the start, for rates."""
        with self._lock:
            return self._last_seconds[0]

    def minute_ago(self) -> Reading:
        """Return the reading of one minute ago, or of the start; it has no clients."""
        with self._lock:
            return self._last_minute[0]

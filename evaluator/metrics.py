"""What the service counts about itself: each request, position and batch once, from whichever thread.

docs/metrics.md says what every number means. `Metrics.status` is the `metrics` of a status reply;
evaluator/service/prometheus.py gives the same numbers to Prometheus.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protocol.messages import PRIORITIES

BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Upper edges of the histogram of batch sizes, in positions."""

QUEUE_EDGES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper edges of the histogram of times in the queue, in seconds."""

RATE_WINDOW_S = 5.0
"""positions_per_second is the mean over this long."""


class Counter:
    """A number that only grows."""

    __slots__ = ("_lock", "value")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add to the number. Any thread may call this."""
        with self._lock:
            self.value += amount


class Histogram:
    """Observations counted by size. Its owner serialises access.

    edges: upper edges, inclusive, ascending. counts: observations up to each edge and above the one before,
    the last one those beyond all edges. sum: of all observations.
    """

    __slots__ = ("counts", "edges", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count an observation."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        """The histogram as it is now."""
        copied = Histogram(self.edges)
        copied.counts[:] = self.counts
        copied.sum = self.sum
        return copied

    def status(self, unit: float = 1.0) -> dict[str, Any]:
        """As part of a status reply. unit: what one of the reply's units is worth in the histogram's."""
        edges = [*(f"{edge / unit:g}" for edge in self.edges), "inf"]
        counts = dict(zip(edges, self.counts, strict=True))
        return {**counts, "sum": round(self.sum / unit, 3), "count": sum(self.counts)}


@dataclass(frozen=True, slots=True)
class State:
    """The service at a moment.

    ready: evaluations are taken. clients: seen lately. queued_positions: waiting to be launched.
    device_memory: by device, bytes "used", by whomever, and "total"; of those that say it.
    """

    ready: bool
    clients: int
    queued_positions: int
    device_memory: Mapping[str, Mapping[str, int]]


class Metrics:
    """The numbers of one service.

    positions, batches: evaluated on devices or by the fallback. requests, request_positions: answered with a
    result, by class. bad_messages: that broke the protocol. dropped_replies: whose client was gone or did not
    read. device_failures: batches that a device failed on. fallback_batches: run by the fallback backend.
    not_finite: batches with NaN or infinity in the output. cancelled: requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.positions = Counter(self._lock)
        self.batches = Counter(self._lock)
        self.requests = {name: Counter(self._lock) for name in PRIORITIES}
        self.request_positions = {name: Counter(self._lock) for name in PRIORITIES}
        self.bad_messages = Counter(self._lock)
        self.dropped_replies = Counter(self._lock)
        self.device_failures = Counter(self._lock)
        self.fallback_batches = Counter(self._lock)
        self.not_finite = Counter(self._lock)
        self.cancelled = Counter(self._lock)
        self._errors: dict[str, int] = {}
        self._compute_seconds = 0.0
        self._batch_sizes = Histogram(BATCH_EDGES)
        self._queue_seconds = Histogram(QUEUE_EDGES)
        self._recent: deque[tuple[float, int]] = deque()

    def error(self, code: str) -> None:
        """An error message was sent."""
        with self._lock:
            self._errors[code] = self._errors.get(code, 0) + 1

    def batch(self, positions: int, seconds: float) -> None:
        """A batch has been evaluated, in that many seconds."""
        now = time.monotonic()
        with self._lock:
            self.batches.value += 1
            self.positions.value += positions
            self._compute_seconds += seconds
            self._batch_sizes.observe(positions)
            self._recent.append((now, positions))
            while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
                self._recent.popleft()

    def answered(self, rank: int, positions: int, queue_seconds: float) -> None:
        """A request has its result. rank: the index of its class in PRIORITIES."""
        name = PRIORITIES[rank]
        with self._lock:
            self.requests[name].value += 1
            self.request_positions[name].value += positions
            self._queue_seconds.observe(queue_seconds)

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def compute_seconds(self) -> float:
        """Seconds in which batches were evaluated, added up: two at a time count twice."""
        return self._compute_seconds

    @property
    def positions_per_second(self) -> float:
        """Mean of the last RATE_WINDOW_S seconds, or of all since the start if that is less."""
        now = time.monotonic()
        with self._lock:
            recent = sum(positions for at, positions in self._recent if at >= now - RATE_WINDOW_S)
        return recent / max(1e-3, min(now - self._started, RATE_WINDOW_S))

    @property
    def batch_sizes(self) -> Histogram:
        """Positions in each batch."""
        with self._lock:
            return self._batch_sizes.copy()

    @property
    def queue_seconds(self) -> Histogram:
        """Seconds from the receipt of each answered request to its launch."""
        with self._lock:
            return self._queue_seconds.copy()

    @property
    def errors(self) -> dict[str, int]:
        """Error messages sent, by code."""
        with self._lock:
            return dict(self._errors)

    def status(self, state: State) -> dict[str, Any]:
        """Everything, as the `metrics` of a status reply."""
        positions, batches = self.positions.value, self.batches.value
        return {
            "uptime_s": round(self.uptime_seconds, 3),
            "positions": positions,
            "batches": batches,
            "mean_batch": round(positions / batches, 2) if batches else 0.0,
            "positions_per_second": round(self.positions_per_second, 1),
            "compute_ms_total": round(1000 * self.compute_seconds, 3),
            "classes": {
                name: {"requests": self.requests[name].value, "positions": self.request_positions[name].value}
                for name in PRIORITIES
            },
            "batch_size": self.batch_sizes.status(),
            "queue_ms": self.queue_seconds.status(unit=0.001),
            "errors": self.errors,
            "bad_messages": self.bad_messages.value,
            "dropped_replies": self.dropped_replies.value,
            "device_failures": self.device_failures.value,
            "fallback_batches": self.fallback_batches.value,
            "not_finite": self.not_finite.value,
            "cancelled": self.cancelled.value,
            **asdict(state),
        }

# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters and histograms of the service. Each request, position and batch is counted once, on any thread.

docs/reference/metrics.md defines every number. `Metrics.status` is the `metrics` of a status reply;
evaluator/service/http/prometheus.py exports the same numbers to Prometheus.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.wire.messages import PRIORITIES

BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Upper edges of the histogram of batch sizes, in positions."""

TIME_EDGES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
"""Upper edges of the histograms of times, in seconds."""


def _between(edges: tuple[float, ...], ratio: float) -> tuple[float, ...]:
    """Return the edges and geometric steps between them, so that neighbours differ by at most `ratio`."""
    found = []
    for low, high in pairwise(edges):
        steps = math.ceil(math.log(high / low) / math.log(ratio))
        found += [low * (high / low) ** (step / steps) for step in range(steps)]
    return (*found, edges[-1])


FINE_TIME_EDGES = _between((0.0001, *TIME_EDGES), 1.25)
"""Upper edges for request times, from which percentiles are computed. They include TIME_EDGES, which are the
reported ones."""

RATE_WINDOW_S = 5.0
"""Averaging window of positions_per_second."""


class Counter:
    """A number that only increases."""

    __slots__ = ("_lock", "value")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add to the number. Any thread may call this."""
        with self._lock:
            self.value += amount


class Histogram:
    """A histogram of values. Its owner serialises access.

    edges: upper edges, inclusive, ascending. counts: values in each bin; the last bin is beyond all edges.
    sum: of all values.
    """

    __slots__ = ("counts", "edges", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def observe_all(self, values: NDArray[np.floating[Any] | np.integer[Any]]) -> None:
        """Count an array of values."""
        places = np.searchsorted(self.edges, values, side="left")
        found = np.bincount(places, minlength=len(self.counts)).tolist()
        self.counts[:] = [mine + its for mine, its in zip(self.counts, found, strict=True)]
        self.sum += float(values.sum())

    def add(self, other: Histogram) -> None:
        """Add the counts of a histogram with the same edges."""
        self.counts[:] = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def since(self, before: Histogram) -> Histogram:
        """Return the values counted after `before`, an earlier copy."""
        left = Histogram(self.edges)
        left.counts = [mine - its for mine, its in zip(self.counts, before.counts, strict=True)]
        left.sum = self.sum - before.sum
        return left

    def coarser(self, edges: tuple[float, ...]) -> Histogram:
        """Return the same values with fewer edges, which must be a subset of this histogram's."""
        coarse = Histogram(edges)
        coarse.sum = self.sum
        for edge, count in zip((*self.edges, math.inf), self.counts, strict=True):
            coarse.counts[bisect_left(edges, edge)] += count
        return coarse

    def quantile(self, share: float) -> float | None:
        """Return the quantile, interpolated between two edges; the last edge for values beyond it, None if
        the histogram is empty. share: 0 to 1."""
        wanted = share * sum(self.counts)
        if not wanted:
            return None
        below = 0
        for low, high, count in zip((0.0, *self.edges), self.edges, self.counts, strict=False):
            if count and below + count >= wanted:
                return low + (high - low) * (wanted - below) / count
            below += count
        return self.edges[-1]

    def status(self, unit: float = 1.0) -> dict[str, Any]:
        """Return the entry of a status reply. unit: one unit of the reply, in the histogram's unit."""
        edges = [*(f"{edge / unit:g}" for edge in self.edges), "inf"]
        counts = dict(zip(edges, self.counts, strict=True))
        return {**counts, "sum": round(self.sum / unit, 3), "count": sum(self.counts)}


@dataclass(frozen=True, slots=True)
class State:
    """The state of the service at one moment.

    ready: evaluations are accepted. clients: number of connected clients. connections: number of all
    connections, including unauthenticated ones. queued: positions that wait for launch, by network and class.
    running: batches in flight by device. in_use: whether a device gets work, by device. device_memory: bytes
    "used" by all processes and "total", by device, for devices that report it. device_sensors: "watts" and
    "celsius" by device, as far as known. state: loading, ready, degraded (a device is excluded) or draining.
    since: start of the state in seconds of the Unix epoch. reason: why the service is not ready; empty if it
    is. buffered_bytes: unfinished requests and unread answers. closed_connections: closed or refused by the
    service, by reason. tuning: what is being measured, in words, by device. curves: the largest "measured"
    batch, the "largest" batch of the device, and whether the knee is "known", by network and device.
    busy_seconds: time with a batch in flight, by device. target_ms: latency target by class. max_connections:
    limit of connected clients. keys: "requests" and "positions" answered, requests "refused" and "in_flight",
    by the name of the client's key. stalled: how long a class has had no answer, in words, by class.
    """

    ready: bool
    clients: int
    connections: int
    queued: Mapping[str, Mapping[str, int]]
    running: Mapping[str, int]
    in_use: Mapping[str, bool]
    device_memory: Mapping[str, Mapping[str, int]]
    state: str = "ready"
    since: float = 0.0
    reason: str = ""
    buffered_bytes: int = 0
    closed_connections: Mapping[str, int] = field(default_factory=dict)
    tuning: Mapping[str, str] = field(default_factory=dict)
    device_sensors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    busy_seconds: Mapping[str, float] = field(default_factory=dict)
    target_ms: Mapping[str, float] = field(default_factory=dict)
    max_connections: int = 0
    keys: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stalled: Mapping[str, str] = field(default_factory=dict)

    @property
    def queued_positions(self) -> int:
        """Positions that wait for launch, of all networks and classes."""
        return sum(count for classes in self.queued.values() for count in classes.values())


STALLED_TARGETS = 10
"""Latency targets without an answer after which a class with queued work counts as stalled."""


class Stalls:
    """Finds classes whose queued work gets no answers, by comparing two looks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, float]] = {}
        """Answers of a class with queued work, and since when there have been no more, in seconds."""

    def look(
        self,
        now: float,
        answered: Mapping[str, int],
        queued: Mapping[str, int],
        target_ms: Mapping[str, float],
    ) -> dict[str, str]:
        """Return the stalled classes, each with the reason. now: seconds of a monotonic clock. The others: by
        class."""
        with self._lock:
            for name, count in answered.items():
                if not queued.get(name):
                    self._seen.pop(name, None)
                elif self._seen.get(name, (-1, 0.0))[0] != count:
                    self._seen[name] = count, now
            waits = {name: now - since for name, (_, since) in self._seen.items()}
        return {
            name: f"class {name}: no answer for {wait:.1f} s, its target is {target_ms[name]:g} ms"
            for name, wait in waits.items()
            if 1000 * wait > STALLED_TARGETS * target_ms[name]
        }


@dataclass(slots=True)
class Batches:
    """Batches of one network that one device has evaluated. seconds: time of each."""

    batches: int = 0
    positions: int = 0
    sizes: Histogram = field(default_factory=lambda: Histogram(BATCH_EDGES))
    seconds: Histogram = field(default_factory=lambda: Histogram(TIME_EDGES))


@dataclass(slots=True)
class RequestTotals:
    """Requests of one class for one network that got a result. queue_seconds: from receipt to launch.
    seconds: from receipt to answer."""

    requests: int = 0
    positions: int = 0
    queue_seconds: Histogram = field(default_factory=lambda: Histogram(FINE_TIME_EDGES))
    seconds: Histogram = field(default_factory=lambda: Histogram(FINE_TIME_EDGES))

    def add(self, other: RequestTotals) -> None:
        """Add the counts of another network or class."""
        self.requests += other.requests
        self.positions += other.positions
        self.queue_seconds.add(other.queue_seconds)
        self.seconds.add(other.seconds)


class Metrics:
    """The metrics of one service.

    bad_messages: messages that violated the protocol. dropped_replies: replies to clients that were gone or
    did not read. fallback_batches: batches run by a standby. not_finite: batches with NaN or infinity in the
    output. cancelled: cancelled requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.perf_counter()
        self.bad_messages = Counter(self._lock)
        self.dropped_replies = Counter(self._lock)
        self.fallback_batches = Counter(self._lock)
        self.not_finite = Counter(self._lock)
        self.cancelled = Counter(self._lock)
        self._errors: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._hangs: dict[str, int] = {}
        self._batches: dict[tuple[str, str], Batches] = {}
        self._requests: dict[tuple[str, str], RequestTotals] = {}
        self._recent: deque[tuple[float, int]] = deque()

    def error(self, code: str) -> None:
        """Count a sent error message."""
        with self._lock:
            self._errors[code] = self._errors.get(code, 0) + 1

    def device_failed(self, device: str) -> None:
        """Count a batch that failed on a device."""
        with self._lock:
            self._failures[device] = self._failures.get(device, 0) + 1

    def device_hung(self, device: str) -> None:
        """Count a batch that hung on a device."""
        with self._lock:
            self._hangs[device] = self._hangs.get(device, 0) + 1

    def batch(self, network: str, device: str, positions: int, seconds: float) -> None:
        """Count an evaluated batch and its time."""
        with self._lock:
            counted = self._batches.get((network, device)) or self._batches_of(network, device)
            counted.batches += 1
            counted.positions += positions
            counted.sizes.observe(positions)
            counted.seconds.observe(seconds)
            self._note_recent(positions)

    def batches_ran(
        self, network: str, device: str, positions: NDArray[np.integer[Any]], seconds: NDArray[np.float64]
    ) -> None:
        """Count evaluated batches. positions, seconds: one element per batch."""
        with self._lock:
            counted = self._batches_of(network, device)
            counted.batches += len(positions)
            counted.positions += int(positions.sum())
            counted.sizes.observe_all(positions)
            counted.seconds.observe_all(seconds)
            self._note_recent(int(positions.sum()))

    def _batches_of(self, network: str, device: str) -> Batches:
        counted = self._batches.get((network, device))
        if counted is None:
            counted = self._batches[network, device] = Batches()
        return counted

    def _note_recent(self, positions: int) -> None:
        now = time.perf_counter()
        self._recent.append((now, positions))
        while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
            self._recent.popleft()

    def answered(self, network: str, rank: int, positions: int, queue_seconds: float, seconds: float) -> None:
        """Count a request with a result. rank: index of its class in PRIORITIES. queue_seconds: from receipt
        to launch. seconds: from receipt to answer."""
        with self._lock:
            counted = self._requests.get((PRIORITIES[rank], network)) or self._requests_of(network, rank)
            counted.requests += 1
            counted.positions += positions
            counted.queue_seconds.observe(queue_seconds)
            counted.seconds.observe(seconds)

    def all_answered(
        self,
        network: str,
        rank: int,
        positions: NDArray[np.integer[Any]],
        queue_seconds: NDArray[np.float64],
        seconds: NDArray[np.float64],
    ) -> None:
        """Count requests of one class with results. Arrays have one element per request; see `answered`."""
        with self._lock:
            counted = self._requests_of(network, rank)
            counted.requests += len(positions)
            counted.positions += int(positions.sum())
            counted.queue_seconds.observe_all(queue_seconds)
            counted.seconds.observe_all(seconds)

    def _requests_of(self, network: str, rank: int) -> RequestTotals:
        key = PRIORITIES[rank], network
        counted = self._requests.get(key)
        if counted is None:
            counted = self._requests[key] = RequestTotals()
        return counted

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    @property
    def positions_per_second(self) -> float:
        """Mean of the last RATE_WINDOW_S seconds, or since the start if that is shorter."""
        now = time.perf_counter()
        with self._lock:
            recent = sum(positions for at, positions in self._recent if at >= now - RATE_WINDOW_S)
        return recent / max(1e-3, min(now - self._started, RATE_WINDOW_S))

    @property
    def batches(self) -> dict[tuple[str, str], Batches]:
        """Evaluated batches by network and device."""
        with self._lock:
            return deepcopy(self._batches)

    @property
    def requests(self) -> dict[tuple[str, str], RequestTotals]:
        """Answered requests by class and network."""
        with self._lock:
            return deepcopy(self._requests)

    @property
    def answered_requests(self) -> dict[str, int]:
        """Numbers of answered requests by class."""
        counts: dict[str, int] = dict.fromkeys(PRIORITIES, 0)
        with self._lock:
            for (name, _), counted in self._requests.items():
                counts[name] += counted.requests
        return counts

    @property
    def errors(self) -> dict[str, int]:
        """Sent error messages by code."""
        with self._lock:
            return dict(self._errors)

    @property
    def device_failures(self) -> dict[str, int]:
        """Failed batches by device."""
        with self._lock:
            return dict(self._failures)

    @property
    def device_hangs(self) -> dict[str, int]:
        """Hung batches by device."""
        with self._lock:
            return dict(self._hangs)

    def status(self, state: State) -> dict[str, Any]:
        """Return the `metrics` of a status reply."""
        batches, requests = self.batches, self.requests
        sizes, queue = Histogram(BATCH_EDGES), Histogram(TIME_EDGES)
        for ran in batches.values():
            sizes.add(ran.sizes)
        for answered in requests.values():
            queue.add(answered.queue_seconds.coarser(TIME_EDGES))
        count, positions = sum(sizes.counts), sum(ran.positions for ran in batches.values())
        of_class = {name: [each for key, each in requests.items() if key[0] == name] for name in PRIORITIES}
        return {
            "uptime_s": round(self.uptime_seconds, 3),
            "positions": positions,
            "batches": count,
            "mean_batch": round(positions / count, 2) if count else 0.0,
            "positions_per_second": round(self.positions_per_second, 1),
            "compute_ms_total": round(1000 * sum(ran.seconds.sum for ran in batches.values()), 3),
            "classes": {
                name: {
                    "requests": sum(each.requests for each in found),
                    "positions": sum(each.positions for each in found),
                }
                for name, found in of_class.items()
            },
            "batch_size": sizes.status(),
            "queue_ms": queue.status(unit=0.001),
            "errors": self.errors,
            "bad_messages": self.bad_messages.value,
            "dropped_replies": self.dropped_replies.value,
            "device_failures": sum(self.device_failures.values()),
            "device_hangs": sum(self.device_hangs.values()),
            "fallback_batches": self.fallback_batches.value,
            "not_finite": self.not_finite.value,
            "cancelled": self.cancelled.value,
            "queued_positions": state.queued_positions,
            "keys": {name: dict(counts) for name, counts in state.keys.items()},
            **asdict(state),
        }

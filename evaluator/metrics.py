# SPDX-License-Identifier: GPL-3.0-or-later
"""What the service counts about itself: each request, position and batch once, from whichever thread.

docs/reference/metrics.md says what every number means. `Metrics.status` is the `metrics` of a status reply;
evaluator/service/http/prometheus.py gives the same numbers to Prometheus.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.messages import PRIORITIES

BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Upper edges of the histogram of batch sizes, in positions."""

TIME_EDGES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""Upper edges of the histograms of times, in seconds."""


def _between(edges: tuple[float, ...], ratio: float) -> tuple[float, ...]:
    """Edges, with as many between them as it takes for none to be more than `ratio` times the one below."""
    found = []
    for low, high in pairwise(edges):
        steps = math.ceil(math.log(high / low) / math.log(ratio))
        found += [low * (high / low) ** (step / steps) for step in range(steps)]
    return (*found, edges[-1])


FINE_TIME_EDGES = _between((0.0001, *TIME_EDGES), 1.25)
"""Upper edges by which times of requests are counted, from which their percentiles follow; TIME_EDGES are
among them, and are what is reported."""

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

    def observe_all(self, values: NDArray[np.floating[Any] | np.integer[Any]]) -> None:
        """Count many observations at once."""
        places = np.searchsorted(self.edges, values, side="left")
        found = np.bincount(places, minlength=len(self.counts)).tolist()
        self.counts[:] = [mine + its for mine, its in zip(self.counts, found, strict=True)]
        self.sum += float(values.sum())

    def copy(self) -> Histogram:
        """The histogram as it is now."""
        copied = Histogram(self.edges)
        copied.add(self)
        return copied

    def add(self, other: Histogram) -> None:
        """Count another histogram's observations, too. It has the same edges."""
        self.counts[:] = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def since(self, before: Histogram) -> Histogram:
        """What has been observed since it was another one."""
        left = Histogram(self.edges)
        left.counts = [mine - its for mine, its in zip(self.counts, before.counts, strict=True)]
        left.sum = self.sum - before.sum
        return left

    def coarser(self, edges: tuple[float, ...]) -> Histogram:
        """The same observations by fewer edges, all of which are edges of this one."""
        coarse = Histogram(edges)
        coarse.sum = self.sum
        for edge, count in zip((*self.edges, math.inf), self.counts, strict=True):
            coarse.counts[bisect_left(edges, edge)] += count
        return coarse

    def quantile(self, share: float) -> float | None:
        """The value that this share of the observations does not exceed, to within the distance of two edges;
        the last edge for one beyond it, None when nothing has been observed."""
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
        """As part of a status reply. unit: what one of the reply's units is worth in the histogram's."""
        edges = [*(f"{edge / unit:g}" for edge in self.edges), "inf"]
        counts = dict(zip(edges, self.counts, strict=True))
        return {**counts, "sum": round(self.sum / unit, 3), "count": sum(self.counts)}


@dataclass(frozen=True, slots=True)
class State:
    """The service at a moment.

    ready: evaluations are taken. clients: connected. connections: theirs, and those of others. queued: the
    positions waiting to be launched, by network and class. running: batches on each device. in_use: whether
    each device is given work. device_memory: by device, bytes "used", by whomever, and "total"; of those that
    say it. device_sensors: by device, "watts" and "celsius", as far as they are known; of those that say any.
    state: loading, ready, degraded (a device is left out) or draining; since: when it began, in seconds of
    the Unix epoch; reason: why it is not ready, else empty. buffered_bytes: of unfinished requests and unread
    answers. closed_connections: how many the service has closed or refused, by reason. tuning:
    what is being measured on a device, in words, by device. curves: by network and device, the largest
    batch that was "measured", the "largest" of the device, and whether the knee is "known". busy_seconds:
    for how long each device has had a batch in flight. target_ms: latency to keep, by class.
    max_connections: clients that may be connected.
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

    @property
    def queued_positions(self) -> int:
        """Positions waiting to be launched, of all networks and classes."""
        return sum(count for classes in self.queued.values() for count in classes.values())


@dataclass(slots=True)
class Batches:
    """Batches of one network that one device has evaluated. seconds: that each took."""

    batches: int = 0
    positions: int = 0
    sizes: Histogram = field(default_factory=lambda: Histogram(BATCH_EDGES))
    seconds: Histogram = field(default_factory=lambda: Histogram(TIME_EDGES))

    def copy(self) -> Batches:
        """The numbers as they are now."""
        return Batches(self.batches, self.positions, self.sizes.copy(), self.seconds.copy())


@dataclass(slots=True)
class Requests:
    """Requests of one class for one network that were answered with a result. queue_seconds: from the receipt
    of each to its launch. seconds: to its answer."""

    requests: int = 0
    positions: int = 0
    queue_seconds: Histogram = field(default_factory=lambda: Histogram(FINE_TIME_EDGES))
    seconds: Histogram = field(default_factory=lambda: Histogram(FINE_TIME_EDGES))

    def copy(self) -> Requests:
        """The numbers as they are now."""
        return Requests(self.requests, self.positions, self.queue_seconds.copy(), self.seconds.copy())

    def add(self, other: Requests) -> None:
        """Count another network's or class's, too."""
        self.requests += other.requests
        self.positions += other.positions
        self.queue_seconds.add(other.queue_seconds)
        self.seconds.add(other.seconds)


class Metrics:
    """The numbers of one service.

    bad_messages: that broke the protocol. dropped_replies: whose client was gone or did not read.
    fallback_batches: run by a standby. not_finite: batches with NaN or infinity in the output. cancelled:
    requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.bad_messages = Counter(self._lock)
        self.dropped_replies = Counter(self._lock)
        self.fallback_batches = Counter(self._lock)
        self.not_finite = Counter(self._lock)
        self.cancelled = Counter(self._lock)
        self._errors: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._hangs: dict[str, int] = {}
        self._batches: dict[tuple[str, str], Batches] = {}
        self._requests: dict[tuple[str, str], Requests] = {}
        self._recent: deque[tuple[float, int]] = deque()

    def error(self, code: str) -> None:
        """An error message was sent."""
        with self._lock:
            self._errors[code] = self._errors.get(code, 0) + 1

    def device_failed(self, device: str) -> None:
        """A device failed on a batch."""
        with self._lock:
            self._failures[device] = self._failures.get(device, 0) + 1

    def device_hung(self, device: str) -> None:
        """A device did not come back from a batch in time."""
        with self._lock:
            self._hangs[device] = self._hangs.get(device, 0) + 1

    def batch(self, network: str, device: str, positions: int, seconds: float) -> None:
        """A batch has been evaluated, in that many seconds."""
        with self._lock:
            counted = self._batches_of(network, device)
            counted.batches += 1
            counted.positions += positions
            counted.sizes.observe(positions)
            counted.seconds.observe(seconds)
            self._note_recent(positions)

    def batches_ran(
        self, network: str, device: str, positions: NDArray[np.integer[Any]], seconds: NDArray[np.float64]
    ) -> None:
        """Batches have been evaluated: for each its positions and seconds."""
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
        now = time.monotonic()
        self._recent.append((now, positions))
        while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
            self._recent.popleft()

    def answered(self, network: str, rank: int, positions: int, queue_seconds: float, seconds: float) -> None:
        """A request has its result. rank: the index of its class in PRIORITIES. queue_seconds: from its
        receipt to its launch; seconds: to its answer."""
        with self._lock:
            counted = self._requests_of(network, rank)
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
        """Requests of one class have their results: as of `answered`, for each."""
        with self._lock:
            counted = self._requests_of(network, rank)
            counted.requests += len(positions)
            counted.positions += int(positions.sum())
            counted.queue_seconds.observe_all(queue_seconds)
            counted.seconds.observe_all(seconds)

    def _requests_of(self, network: str, rank: int) -> Requests:
        key = PRIORITIES[rank], network
        counted = self._requests.get(key)
        if counted is None:
            counted = self._requests[key] = Requests()
        return counted

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def positions_per_second(self) -> float:
        """Mean of the last RATE_WINDOW_S seconds, or of all since the start if that is less."""
        now = time.monotonic()
        with self._lock:
            recent = sum(positions for at, positions in self._recent if at >= now - RATE_WINDOW_S)
        return recent / max(1e-3, min(now - self._started, RATE_WINDOW_S))

    @property
    def batches(self) -> dict[tuple[str, str], Batches]:
        """What was evaluated, by network and device."""
        with self._lock:
            return {key: counted.copy() for key, counted in self._batches.items()}

    @property
    def requests(self) -> dict[tuple[str, str], Requests]:
        """What was answered, by class and network."""
        with self._lock:
            return {key: counted.copy() for key, counted in self._requests.items()}

    @property
    def errors(self) -> dict[str, int]:
        """Error messages sent, by code."""
        with self._lock:
            return dict(self._errors)

    @property
    def device_failures(self) -> dict[str, int]:
        """Batches that each device failed on."""
        with self._lock:
            return dict(self._failures)

    @property
    def device_hangs(self) -> dict[str, int]:
        """Batches that each device did not come back from in time."""
        with self._lock:
            return dict(self._hangs)

    def status(self, state: State) -> dict[str, Any]:
        """Everything, as the `metrics` of a status reply."""
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
            **asdict(state),
        }

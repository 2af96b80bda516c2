"""What the service counts about itself: a dictionary in `status`, and Prometheus text."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Upper edges of the batch size histogram."""

QUEUE_EDGES_MS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""Upper edges of the queue time histogram."""

RATE_WINDOW_S = 5.0
"""positions_per_second is the mean over this long."""

CLASS_NAMES = ("play", "analysis", "selfplay")


class _Histogram:
    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        index = 0
        while index < len(self.edges) and value > self.edges[index]:
            index += 1
        self.counts[index] += 1
        self.sum += value

    def snapshot(self) -> dict[str, Any]:
        buckets = {f"{edge:g}": count for edge, count in zip(self.edges, self.counts, strict=False)}
        return {**buckets, "inf": self.counts[-1], "sum": round(self.sum, 3), "count": sum(self.counts)}


class Metrics:
    """Counters of one service. Any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._class_requests = [0, 0, 0]
        self._class_positions = [0, 0, 0]
        self._batches = _Histogram(BATCH_EDGES)
        self._queue = _Histogram(QUEUE_EDGES_MS)
        self._recent: deque[tuple[float, int]] = deque()

    def count(self, name: str) -> None:
        """Add one to a counter: bad_messages, dropped_replies, device_failures, not_finite, …"""
        with self._lock:
            self._counts[name] += 1

    def error(self, code: str) -> None:
        """An error was sent."""
        with self._lock:
            self._errors[code] += 1

    def batch(self, positions: int, milliseconds: float) -> None:
        """A device batch has run."""
        now = time.monotonic()
        with self._lock:
            self._counts["batches"] += 1
            self._counts["positions"] += positions
            self._counts["compute_us"] += round(1000 * milliseconds)
            self._batches.add(positions)
            self._recent.append((now, positions))
            while self._recent and self._recent[0][0] < now - RATE_WINDOW_S:
                self._recent.popleft()

    def answered(self, rank: int, positions: int, queue_ms: float) -> None:
        """A request has its result."""
        with self._lock:
            self._class_requests[rank] += 1
            self._class_positions[rank] += positions
            self._queue.add(queue_ms)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data: the `metrics` of a status reply."""
        now = time.monotonic()
        with self._lock:
            uptime = now - self._started
            recent = sum(positions for at, positions in self._recent if at >= now - RATE_WINDOW_S)
            batches = self._counts["batches"]
            return {
                "uptime_s": round(uptime, 3),
                "positions": self._counts["positions"],
                "batches": batches,
                "mean_batch": round(self._counts["positions"] / batches, 2) if batches else 0.0,
                "positions_per_second": round(recent / max(1e-3, min(uptime, RATE_WINDOW_S)), 1),
                "compute_ms_total": self._counts["compute_us"] / 1000,
                "classes": {
                    name: {"requests": self._class_requests[rank], "positions": self._class_positions[rank]}
                    for rank, name in enumerate(CLASS_NAMES)
                },
                "batch_size": self._batches.snapshot(),
                "queue_ms": self._queue.snapshot(),
                "errors": dict(self._errors),
                "bad_messages": self._counts["bad_messages"],
                "dropped_replies": self._counts["dropped_replies"],
                "device_failures": self._counts["device_failures"],
                "fallback_batches": self._counts["fallback_batches"],
                "not_finite": self._counts["not_finite"],
                "cancelled": self._counts["cancelled"],
            }


def prometheus_text(status: dict[str, Any]) -> str:
    """A metrics snapshot (with `ready` and `queued_positions` added) in Prometheus' text format 0.0.4."""
    return "".join(f"{line}\n" for line in _prometheus_lines(status))


def _prometheus_lines(status: dict[str, Any]) -> Iterator[str]:
    for name, kind, text in (
        ("ready", "gauge", "1 when evaluations are taken"),
        ("uptime_s", "gauge", "seconds since the start"),
        ("queued_positions", "gauge", "positions waiting"),
        ("clients", "gauge", "clients seen lately"),
        ("positions_per_second", "gauge", f"mean of the last {RATE_WINDOW_S:g} seconds"),
        ("positions", "counter", "positions evaluated"),
        ("batches", "counter", "device batches run"),
        ("compute_ms_total", "counter", "milliseconds in device batches"),
        ("bad_messages", "counter", "messages that broke the protocol"),
        ("dropped_replies", "counter", "answers whose client was gone"),
        ("device_failures", "counter", "device batches that failed"),
        ("fallback_batches", "counter", "batches run by the fallback backend"),
        ("not_finite", "counter", "batches with NaN or infinity in the output"),
        ("cancelled", "counter", "requests cancelled"),
    ):
        if name in status:
            metric = _metric(name, kind)
            yield f"# HELP {metric} {text}"
            yield f"# TYPE {metric} {kind}"
            yield f"{metric} {float(status[name]):g}"
    for name, sizes in status.get("device_memory", {}).items():
        for what, size in sizes.items():
            yield f'wavefront_device_memory_bytes{{device="{name}",what="{what}"}} {size}'
    yield "# TYPE wavefront_requests_total counter"
    for name, counts in status["classes"].items():
        yield f'wavefront_requests_total{{class="{name}"}} {counts["requests"]}'
    yield "# TYPE wavefront_errors_total counter"
    for code, count in status["errors"].items():
        yield f'wavefront_errors_total{{code="{code}"}} {count}'
    for name in ("batch_size", "queue_ms"):
        values = status[name]
        yield f"# TYPE wavefront_{name} histogram"
        running = 0
        for edge, count in values.items():
            if edge not in ("sum", "count"):
                running += count
                yield f'wavefront_{name}_bucket{{le="{"+Inf" if edge == "inf" else edge}"}} {running}'
        yield f"wavefront_{name}_sum {values['sum']}"
        yield f"wavefront_{name}_count {values['count']}"


def _metric(name: str, kind: str) -> str:
    suffix = "_total" if kind == "counter" and not name.endswith("_total") else ""
    return f"wavefront_{name}{suffix}"

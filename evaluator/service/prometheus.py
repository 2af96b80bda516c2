"""The service's metrics for Prometheus: names, types and units as docs/metrics.md lists them.

Imported only where they are served: prometheus_client costs the start a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from evaluator.metrics import RATE_WINDOW_S, Histogram, Metrics, State


def registry(metrics: Metrics, state: Callable[[], State]) -> CollectorRegistry:
    """A registry that reads a service's metrics when it is scraped, and holds nothing else."""
    made = CollectorRegistry(support_collectors_without_names=True)
    made.register(_ServiceCollector(metrics, state))
    return made


class _ServiceCollector:
    def __init__(self, metrics: Metrics, state: Callable[[], State]) -> None:
        self._metrics = metrics
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Every metric as it is now."""
        yield from self._gauges()
        yield from self._counters()
        yield _histogram("wavefront_batch_size", "Positions in each batch.", self._metrics.batch_sizes)
        yield _histogram(
            "wavefront_queue_seconds",
            "Time from the receipt of each answered request to its launch.",
            self._metrics.queue_seconds,
            "seconds",
        )

    def _gauges(self) -> Iterator[Metric]:
        metrics, state = self._metrics, self._state()
        for name, text, value in (
            ("ready", "1 when evaluations are taken, else 0.", float(state.ready)),
            ("clients", "Clients seen lately.", state.clients),
            ("queued_positions", "Positions waiting to be launched.", state.queued_positions),
            (
                "positions_per_second",
                f"Positions evaluated, mean of the last {RATE_WINDOW_S:g} seconds.",
                metrics.positions_per_second,
            ),
        ):
            yield GaugeMetricFamily(f"wavefront_{name}", text, value)
        yield GaugeMetricFamily(
            "wavefront_uptime_seconds", "Time since the start.", metrics.uptime_seconds, unit="seconds"
        )
        memory = GaugeMetricFamily(
            "wavefront_device_memory_bytes",
            "Memory of each device that says so: in use, by whomever, and in all.",
            labels=["device", "what"],
            unit="bytes",
        )
        for device, sizes in state.device_memory.items():
            for what, size in sizes.items():
                memory.add_metric([device, what], size)
        yield memory

    def _counters(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text, counter in (
            ("positions", "Positions evaluated.", metrics.positions),
            ("batches", "Batches evaluated.", metrics.batches),
            ("bad_messages", "Messages that broke the protocol.", metrics.bad_messages),
            (
                "dropped_replies",
                "Answers whose client was gone or did not read them.",
                metrics.dropped_replies,
            ),
            ("device_failures", "Batches that a device failed on.", metrics.device_failures),
            ("fallback_batches", "Batches run by the fallback backend.", metrics.fallback_batches),
            ("not_finite", "Batches with NaN or infinity in a device's output.", metrics.not_finite),
            ("cancelled", "Requests cancelled.", metrics.cancelled),
        ):
            yield CounterMetricFamily(f"wavefront_{name}", text, counter.value)
        yield CounterMetricFamily(
            "wavefront_compute_seconds",
            "Time in which batches were evaluated, added up: two at a time count twice.",
            metrics.compute_seconds,
            unit="seconds",
        )
        for name, text, label, values in (
            ("requests", "Requests answered with a result, by class.", "class", metrics.requests),
            (
                "request_positions",
                "Positions of the requests answered with a result, by class.",
                "class",
                metrics.request_positions,
            ),
        ):
            family = CounterMetricFamily(f"wavefront_{name}", text, labels=[label])
            for key, each in values.items():
                family.add_metric([key], each.value)
            yield family
        errors = CounterMetricFamily(
            "wavefront_errors", "Error messages sent, by the protocol's code.", labels=["code"]
        )
        for code, count in metrics.errors.items():
            errors.add_metric([code], count)
        yield errors


def _histogram(name: str, text: str, histogram: Histogram, unit: str = "") -> Metric:
    buckets: list[tuple[str, float]] = []
    below = 0
    for edge, count in zip([*map(str, histogram.edges), "+Inf"], histogram.counts, strict=True):
        below += count
        buckets.append((edge, below))
    return HistogramMetricFamily(name, text, buckets, histogram.sum, unit=unit)

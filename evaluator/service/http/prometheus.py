# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics for Prometheus. docs/reference/metrics.md lists names, types, labels and units.

Imported only if metrics are served: prometheus_client adds 0.1 s to the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from evaluator.metrics import RATE_WINDOW_S, TIME_EDGES, Histogram, Metrics, State
from evaluator.service.lifecycle import STATES
from protocol.host.version import __version__

Labels = tuple[str, ...]


def registry(metrics: Metrics, state: Callable[[], State]) -> CollectorRegistry:
    """Return a registry that reads a service's metrics at each scrape, and contains nothing else."""
    made = CollectorRegistry(support_collectors_without_names=True)
    made.register(_ServiceCollector(metrics, state))
    return made


class _ServiceCollector:
    def __init__(self, metrics: Metrics, state: Callable[[], State]) -> None:
        self._metrics = metrics
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Yield the current value of each metric."""
        yield _gauge("build_info", "What runs.", {(__version__,): 1}, ("version",))
        state = self._state()
        yield from self._service(state)
        yield from _devices(state)
        yield from self._batches()
        yield from self._requests()
        yield from self._faults(state)

    def _service(self, state: State) -> Iterator[Metric]:
        yield _gauge("ready", "1 when evaluations are taken, else 0.", {(): state.ready})
        yield _gauge(
            "state",
            "1 for the state that the service is in.",
            {(name,): name == state.state for name in STATES},
            ("state",),
        )
        yield _gauge(
            "state_since_seconds", "When the present state began, as a Unix time.", {(): state.since}
        )
        yield _gauge("uptime_seconds", "Time since the start.", {(): self._metrics.uptime_seconds})
        yield _gauge("clients", "Clients that are connected.", {(): state.clients})
        yield _gauge("connections", "Connections, of clients and of others.", {(): state.connections})
        yield _gauge(
            "max_connections",
            "Clients that may be connected, at ipc addresses and again at the others.",
            {(): state.max_connections},
        )
        yield _gauge(
            "target_seconds",
            "Latency to keep for requests.",
            {(name,): target / 1000 for name, target in state.target_ms.items()},
            ("class",),
        )
        yield _gauge(
            "buffered_bytes",
            "Bytes of requests that are not whole yet, and of answers that clients have not read.",
            {(): state.buffered_bytes},
        )
        yield _counter(
            "closed_connections",
            "Connections that the service has closed or refused.",
            _keyed(state.closed_connections),
            ("reason",),
        )
        for name, text, what in (
            ("key_requests", "Requests answered with a result, by the client's key.", "requests"),
            ("key_positions", "Positions of these.", "positions"),
            ("key_refused", "Requests beyond a limit of the key.", "refused"),
        ):
            yield _counter(name, text, {(key,): each[what] for key, each in state.keys.items()}, ("key",))
        yield _gauge(
            "queued_positions",
            "Positions waiting to be launched.",
            {
                (network, name): count
                for network, each in state.queued.items()
                for name, count in each.items()
            },
            ("network", "class"),
        )
        curves, labels = state.curves, ("network", "device")
        for name, text, what in (
            ("measured_batch_positions", "The largest batch whose time was measured.", "measured"),
            ("largest_batch_positions", "The largest batch that the device takes.", "largest"),
            ("knee_known", "1 once no batch size is left to measure, else 0.", "known"),
        ):
            values: dict[Labels, float] = {
                (network, device): told[what]
                for network in curves
                for device, told in curves[network].items()
            }
            yield _gauge(name, text, values, labels)
        yield _gauge(
            "positions_per_second",
            f"Positions evaluated, mean of the last {RATE_WINDOW_S:g} seconds.",
            {(): self._metrics.positions_per_second},
        )

    def _batches(self) -> Iterator[Metric]:
        batches, labels = self._metrics.batches, ("network", "device")
        yield _counter(
            "positions", "Positions evaluated.", {k: v.positions for k, v in batches.items()}, labels
        )
        yield _counter("batches", "Batches evaluated.", {k: v.batches for k, v in batches.items()}, labels)
        yield _histogram(
            "batch_size", "Positions in each batch.", {k: v.sizes for k, v in batches.items()}, labels
        )
        yield _histogram(
            "batch_seconds",
            "Time in which each batch was evaluated: two at a time count twice.",
            {k: v.seconds for k, v in batches.items()},
            labels,
        )

    def _requests(self) -> Iterator[Metric]:
        requests, labels = self._metrics.requests, ("class", "network")
        yield _counter(
            "requests",
            "Requests answered with a result.",
            {k: v.requests for k, v in requests.items()},
            labels,
        )
        yield _counter(
            "request_positions",
            "Positions of the requests answered with a result.",
            {k: v.positions for k, v in requests.items()},
            labels,
        )
        yield _histogram(
            "queue_seconds",
            "Time from the receipt of each answered request to its launch.",
            {k: v.queue_seconds.coarser(TIME_EDGES) for k, v in requests.items()},
            labels,
        )
        yield _histogram(
            "request_seconds",
            "Time from the receipt of each request to its result.",
            {k: v.seconds.coarser(TIME_EDGES) for k, v in requests.items()},
            labels,
        )

    def _faults(self, state: State) -> Iterator[Metric]:
        metrics = self._metrics
        # Start at 0: Prometheus sees no increase in a series that begins with 1.
        none = dict.fromkeys(state.in_use, 0)
        yield _counter("errors", "Error messages sent.", _keyed(metrics.errors), ("code",))
        yield _counter(
            "device_failures",
            "Batches that a device failed on.",
            _keyed(none | dict(metrics.device_failures)),
            ("device",),
        )
        yield _counter(
            "device_hangs",
            "Batches that a device did not come back from in time.",
            _keyed(none | dict(metrics.device_hangs)),
            ("device",),
        )
        for name, text, counter in (
            ("bad_messages", "Messages that broke the protocol.", metrics.bad_messages),
            (
                "dropped_replies",
                "Answers whose client was gone or did not read them.",
                metrics.dropped_replies,
            ),
            ("fallback_batches", "Batches run by a standby in place of devices.", metrics.fallback_batches),
            ("not_finite", "Batches with NaN or infinity in a device's output.", metrics.not_finite),
            ("cancelled", "Requests cancelled.", metrics.cancelled),
        ):
            yield _counter(name, text, {(): counter.value})


def _devices(state: State) -> Iterator[Metric]:
    yield _gauge(
        "device_in_use",
        "1 for a device that is given work, 0 for one that is left out.",
        _keyed(state.in_use),
        ("device",),
    )
    yield _gauge("running_batches", "Batches on each device.", _keyed(state.running), ("device",))
    yield _counter(
        "device_busy_seconds",
        "Time with a batch in flight on each device: several at a time count once.",
        _keyed(state.busy_seconds),
        ("device",),
    )
    yield _gauge(
        "device_tuning",
        "1 while kernels are measured on a device, else 0.",
        {(device,): device in state.tuning for device in state.in_use},
        ("device",),
    )
    yield _gauge(
        "device_memory_bytes",
        "Memory of each device that says so: in use, by whomever, and in all.",
        {(device, what): size for device, each in state.device_memory.items() for what, size in each.items()},
        ("device", "what"),
    )
    for name, text, known in (
        ("device_power_watts", "Power that each device draws, of those whose driver says it.", "watts"),
        ("device_temperature_celsius", "Temperature of each device's chip, likewise.", "celsius"),
    ):
        values = {device: each[known] for device, each in state.device_sensors.items() if known in each}
        if values:
            yield _gauge(name, text, _keyed(values), ("device",))


def _keyed(values: Mapping[str, float]) -> dict[Labels, float]:
    return {(key,): value for key, value in values.items()}


def _gauge(name: str, text: str, values: Mapping[Labels, float], labels: Labels = ()) -> Metric:
    family = GaugeMetricFamily(f"wavefront_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def _counter(name: str, text: str, values: Mapping[Labels, float], labels: Labels = ()) -> Metric:
    family = CounterMetricFamily(f"wavefront_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, values: Mapping[Labels, Histogram], labels: Labels) -> Metric:
    family = HistogramMetricFamily(f"wavefront_{name}", text, labels=labels)
    for key, histogram in values.items():
        buckets: list[tuple[str, float]] = []
        total = 0
        for edge, count in zip((*histogram.edges, float("inf")), histogram.counts, strict=True):
            total += count
            buckets.append(("+Inf" if edge == float("inf") else f"{edge:g}", total))
        family.add_metric(key, buckets, histogram.sum)
    return family

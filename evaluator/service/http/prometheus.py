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

from evaluator.devices.metrics import RATE_WINDOW_S, TIME_EDGES, Histogram, Metrics, State
from evaluator.service.lifecycle import STATES
from protocol.common.version import __version__

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
        yield _gauge("build_info", "Version of the evaluator.", {(__version__,): 1}, ("version",))
        state = self._state()
        yield from self._service(state)
        yield from _devices(state)
        yield from self._batches()
        yield from self._requests()
        yield from self._faults(state)

    def _service(self, state: State) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text, value in (
            ("ready", "1 if evaluations are accepted and computed, else 0.", state.ready),
            ("state_since_seconds", "Start of the current state, as a Unix time.", state.since),
            ("uptime_seconds", "Time since the start.", metrics.uptime_seconds),
            ("clients", "Connected clients that have sent a message.", state.clients),
            ("connections", "Open connections, also without a message.", state.connections),
            (
                "max_connections",
                "Maximum clients at ipc addresses, and again at tcp addresses.",
                state.max_connections,
            ),
            ("buffered_bytes", "Bytes of incomplete requests and unread answers.", state.buffered_bytes),
            (
                "positions_per_second",
                f"Evaluated positions, mean of the last {RATE_WINDOW_S:g} seconds.",
                metrics.positions_per_second,
            ),
        ):
            yield _gauge(name, text, {(): value})
        states: dict[Labels, float] = {(name,): name == state.state for name in STATES}
        yield _gauge("state", "1 for the current state, 0 for the others.", states, ("state",))
        targets = {name: target / 1000 for name, target in state.target_ms.items()}
        yield _gauge("target_seconds", "Latency target of the class.", _keyed(targets), ("class",))
        yield _counter(
            "closed_connections",
            "Connections that the service closed or refused.",
            _keyed(state.closed_connections),
            ("reason",),
        )
        for name, text, what in (
            ("key_requests", "Requests answered with a result, by the name of the client's key.", "requests"),
            ("key_positions", "Positions of these.", "positions"),
            ("key_refused", "Requests beyond a limit of the key.", "refused"),
        ):
            yield _counter(name, text, {(key,): each[what] for key, each in state.keys.items()}, ("key",))
        yield _gauge(
            "queued_positions",
            "Positions waiting for a device.",
            {
                (network, name): count
                for network, each in state.queued.items()
                for name, count in each.items()
            },
            ("network", "class"),
        )
        curves, labels = state.curves, ("network", "device")
        for name, text, what in (
            ("measured_batch_positions", "Largest measured batch size.", "measured"),
            ("largest_batch_positions", "Largest batch size of the device.", "largest"),
            ("knee_known", "1 once all batch sizes are measured, else 0.", "known"),
        ):
            values: dict[Labels, float] = {
                (network, device): told[what]
                for network in curves
                for device, told in curves[network].items()
            }
            yield _gauge(name, text, values, labels)

    def _batches(self) -> Iterator[Metric]:
        batches, labels = self._metrics.batches, ("network", "device")
        for make, name, text, field in (
            (_counter, "positions", "Evaluated positions, also by a standby.", "positions"),
            (_counter, "batches", "Evaluated batches, also by a standby.", "batches"),
            (_histogram, "batch_size", "Positions in each batch.", "sizes"),
            (
                _histogram,
                "batch_seconds",
                "Time of each batch; concurrent batches count separately.",
                "seconds",
            ),
        ):
            yield make(name, text, {key: getattr(each, field) for key, each in batches.items()}, labels)

    def _requests(self) -> Iterator[Metric]:
        requests, labels = self._metrics.requests, ("class", "network")
        for name, text, field in (
            ("requests", "Requests answered with a result.", "requests"),
            ("request_positions", "Positions of the requests answered with a result.", "positions"),
        ):
            yield _counter(name, text, {key: getattr(each, field) for key, each in requests.items()}, labels)
        for name, text, field in (
            ("queue_seconds", "Time from receipt of each answered request to its launch.", "queue_seconds"),
            ("request_seconds", "Time from receipt of each request to its result.", "seconds"),
        ):
            times: dict[Labels, Histogram] = {
                key: getattr(each, field).coarser(TIME_EDGES) for key, each in requests.items()
            }
            yield _histogram(name, text, times, labels)

    def _faults(self, state: State) -> Iterator[Metric]:
        metrics = self._metrics
        # Start at 0: Prometheus sees no increase in a series that begins with 1.
        none = dict.fromkeys(state.in_use, 0)
        yield _counter("errors", "Errors sent.", _keyed(metrics.errors), ("code",))
        for name, text, failed in (
            ("device_failures", "Batches on which the device failed.", metrics.device_failures),
            ("device_hangs", "Batches that the device did not finish in time.", metrics.device_hangs),
        ):
            yield _counter(name, text, _keyed(none | dict(failed)), ("device",))
        for name, text, counter in (
            ("bad_messages", "Messages that broke the protocol.", metrics.bad_messages),
            ("dropped_replies", "Answers to clients that had gone or did not read.", metrics.dropped_replies),
            ("fallback_batches", "Batches computed by a standby.", metrics.fallback_batches),
            ("not_finite", "Batches with NaN or infinity in a device's output.", metrics.not_finite),
            ("cancelled", "Requests cancelled before an answer.", metrics.cancelled),
        ):
            yield _counter(name, text, {(): counter.value})


def _devices(state: State) -> Iterator[Metric]:
    tuning = {device: device in state.tuning for device in state.in_use}
    in_use = "0 for a device that is excluded because it failed or hangs, else 1."
    yield _gauge("device_in_use", in_use, _keyed(state.in_use), ("device",))
    yield _gauge("running_batches", "Running batches of the device.", _keyed(state.running), ("device",))
    busy = "Time with at least one batch on the device."
    yield _counter("device_busy_seconds", busy, _keyed(state.busy_seconds), ("device",))
    measures = "1 while the evaluator measures kernels on the device, else 0."
    yield _gauge("device_tuning", measures, _keyed(tuning), ("device",))
    yield _gauge(
        "device_memory_bytes",
        "Memory of the device, used by all programs and total; absent if unknown.",
        {(device, what): size for device, each in state.device_memory.items() for what, size in each.items()},
        ("device", "what"),
    )
    for name, text, known in (
        ("device_power_watts", "Power of the device; absent if unknown.", "watts"),
        ("device_temperature_celsius", "Temperature of the chip; absent if unknown.", "celsius"),
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

# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP pages of `wavefront analysis --listen`: health check, metrics, list of clients."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from engine.analysis.actions import STATES

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

HEALTH, METRICS, CLIENTS = PATHS = ("/health", "/metrics", "/clients")
"""HEALTH is public; the others need a token, if there are tokens."""

_PREFIX = "wavefront_analysis_"


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client. name: of its token, or empty. since: Unix time in seconds. searching, waiting: positions."""

    name: str
    address: str
    since: float
    searching: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The data of the pages. state: of the evaluator (STATES). load: running and waiting positions, those of
    requests by HTTP among them. silent: connections without a request.
    in_flight: running requests, WebSockets among them. refused: refused requests by HTTP status."""

    state: str
    clients: tuple[ClientInfo, ...]
    load: tuple[int, int]
    silent: int
    in_flight: int
    refused: Mapping[int, int]


def page(path: str, figures: Figures) -> tuple[HTTPStatus, str, str]:
    """Return status, content type and body of one of PATHS."""
    if path == HEALTH:
        status = HTTPStatus.OK if figures.state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", json.dumps({"state": figures.state}) + "\n"
    if path == CLIENTS:
        listed = [asdict(client) for client in figures.clients]
        return HTTPStatus.OK, "application/json", json.dumps(listed) + "\n"
    return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", _metrics(figures)


def _metrics(figures: Figures) -> str:
    # Imported here, because the import of prometheus_client takes 0.1 s.
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(support_collectors_without_names=True)
    registry.register(_Collector(figures))
    return generate_latest(registry).decode()


@dataclass(frozen=True, slots=True, eq=False)  # a registry hashes it
class _Collector:
    figures: Figures

    def collect(self) -> Iterator[Metric]:
        """Yield the current value of every metric."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        figures, clients = self.figures, self.figures.clients
        state = GaugeMetricFamily(f"{_PREFIX}state", "1 for the evaluator's state.", labels=["state"])
        for name in STATES:
            state.add_metric([name], name == figures.state)
        yield state
        for name, text, value in (
            ("clients", "Connected clients.", len(clients)),
            ("silent_connections", "Connections without a request.", figures.silent),
            ("requests_in_flight", "Running requests, WebSockets among them.", figures.in_flight),
            ("searching_positions", "Positions in search.", figures.load[0]),
            ("waiting_positions", "Positions waiting for a search.", figures.load[1]),
        ):
            yield GaugeMetricFamily(f"{_PREFIX}{name}", text, value=value)
        refused = CounterMetricFamily(
            f"{_PREFIX}refused_connections",
            "Refused connections by HTTP status.",
            labels=["status"],
        )
        for status, count in sorted(figures.refused.items()):
            refused.add_metric([str(status)], count)
        yield refused

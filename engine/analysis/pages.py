"""The pages of `wavefront analysis --listen` for plain HTTP: a health check, metrics, the list of clients."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus

from engine.analysis.actions import STATES

HEALTH, METRICS, CLIENTS = PATHS = ("/health", "/metrics", "/clients")
"""HEALTH is for everybody; the others need the token, where there is one."""

_PREFIX = "wavefront_analysis_"


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client. name: of its token, empty without one. since: Unix time in seconds. searching, waiting:
    positions."""

    name: str
    address: str
    since: float
    searching: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What a page is made from. state: of the evaluator (STATES). silent: connections without a request.
    refused: connections that were not let in, by HTTP status."""

    state: str
    clients: tuple[ClientInfo, ...]
    silent: int
    refused: Mapping[int, int]


def page(path: str, figures: Figures) -> tuple[HTTPStatus, str, str]:
    """Status, content type and body of one of PATHS."""
    if path == HEALTH:
        status = HTTPStatus.OK if figures.state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", json.dumps({"state": figures.state}) + "\n"
    if path == CLIENTS:
        listed = [asdict(client) for client in figures.clients]
        return HTTPStatus.OK, "application/json", json.dumps(listed) + "\n"
    return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", _metrics(figures)


def _metrics(figures: Figures) -> str:
    clients = figures.clients
    lines: list[str] = []
    lines += _metric(
        "state",
        "gauge",
        "1 for the state of the evaluator.",
        [(f'{{state="{name}"}}', int(name == figures.state)) for name in STATES],
    )
    lines += _metric("clients", "gauge", "Clients that are connected.", [("", len(clients))])
    lines += _metric("silent_connections", "gauge", "Connections without a request.", [("", figures.silent)])
    searching = sum(client.searching for client in clients)
    lines += _metric("searching_positions", "gauge", "Positions that are searched.", [("", searching)])
    waiting = sum(client.waiting for client in clients)
    lines += _metric("waiting_positions", "gauge", "Positions that wait for a search.", [("", waiting)])
    lines += _metric(
        "refused_connections_total",
        "counter",
        "Connections that were not let in, by HTTP status.",
        [(f'{{status="{status}"}}', count) for status, count in sorted(figures.refused.items())],
    )
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, help: str, values: Iterable[tuple[str, int]]) -> list[str]:
    full = _PREFIX + name
    head = [f"# HELP {full} {help}", f"# TYPE {full} {kind}"]
    return head + [f"{full}{labels} {value}" for labels, value in values]

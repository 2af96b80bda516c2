# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON document of the status page: a status reply and more.

evaluator/page/files/status.schema.json is its schema. HTTP threads build it from counters, from
`Dispatcher.inspect`, and from copies of the I/O thread's lists.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from evaluator.devices.metrics import BATCH_EDGES, Histogram, RequestTotals, State
from evaluator.devices.runners import Runner, now_ms
from evaluator.devices.served_network import ServedNetwork
from evaluator.service.http.history import STEP_S, History, Reading
from evaluator.service.logs import Warnings
from evaluator.service.record import ServiceParts
from evaluator.service.sessions import ClientSession
from protocol.common.version import __version__
from protocol.wire.messages import PRIORITIES

MOST_CLIENTS = 100
"""Maximum clients in a document; those with the highest rates are included."""

NO_BATCHES = Histogram(BATCH_EDGES)


class StatusDocument:
    """Builds the document of a service. Any thread may call `get` while `running` lasts."""

    def __init__(self, service: ServiceParts) -> None:
        self._service = service
        self._history = History(self._read)
        self._warnings = Warnings()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context manager that records the history and the log's warnings."""
        root = logging.getLogger()
        root.addHandler(self._warnings)
        try:
            with self._history.running():
                yield
        finally:
            root.removeHandler(self._warnings)

    def get(self) -> dict[str, Any]:
        """Return the document as JSON-compatible objects."""
        service, state, now = self._service, self._service.state(), self._read()
        return {
            "time": time.time(),
            "version": __version__,
            "instance": service.instance,
            "addresses": list(service.sockets.addresses),
            "live": True,
            "ready": state.ready,
            "draining": state.state == "draining",
            "state": state.state,
            "since": state.since,
            "reason": state.reason,
            "default": service.networks.default,
            "aliases": service.networks.aliases,
            "networks": self._network_list(now),
            "devices": self._device_list(state, now),
            "classes": self._class_list(state, now),
            "clients": self._client_list(now),
            "history": self._history_steps(),
            "warnings": self._warnings.last(),
            "metrics": service.metrics.status(state),
        }

    # -- the parts ---------------------------------------------------------------------------------------

    def _network_list(self, now: Reading) -> list[dict[str, Any]]:
        before = self._history.minute_ago()
        return [self._network(served, now, before) for served in self._service.networks.served()]

    def _network(self, served: ServedNetwork, now: Reading, before: Reading) -> dict[str, Any]:
        info = self._service.dispatcher.info(served)
        runs = self._service.dispatcher.inspect(lambda networks, limits: _runs(served))
        for run in runs:
            run["recent"] = [(positions, float(f"{ms:.4g}")) for positions, ms in run["recent"]]
        sizes = now.sizes.get(info.name, NO_BATCHES).since(before.sizes.get(info.name, NO_BATCHES))
        return {
            **asdict(info),
            "default": info.name == self._service.networks.default,
            "aliases": [alias for alias, name in self._service.networks.aliases.items() if name == info.name],
            "batch_sizes": sizes.status(),
            "runs": runs,
        }

    def _device_list(self, state: State, now: Reading) -> list[dict[str, Any]]:
        devices = self._service.dispatcher.inspect(lambda networks, limits: _devices(networks))
        before = self._history.seconds_ago()
        seconds = now.at - before.at
        failures, hangs = self._service.metrics.device_failures, self._service.metrics.device_hangs
        for device in devices:
            name = device["name"]
            busy_s = (now.busy_ms.get(name, 0.0) - before.busy_ms.get(name, 0.0)) / 1000
            device["busy"] = round(min(1.0, busy_s / seconds), 4) if seconds > 0 else 0.0
            device["failures"] = failures.get(name, 0)
            device["hangs"] = hangs.get(name, 0)
            device["memory"] = state.device_memory.get(name)
            sensors = state.device_sensors.get(name, {})
            device["watts"], device["celsius"] = sensors.get("watts"), sensors.get("celsius")
        return devices

    def _class_list(self, state: State, now: Reading) -> list[dict[str, Any]]:
        limits = self._service.dispatcher.inspect(lambda networks, limits: limits)
        before, minute_ago = self._history.seconds_ago(), self._history.minute_ago()
        entries = []
        for rank, name in enumerate(PRIORITIES):
            requests, earlier = now.requests[name], before.requests[name]
            minute = minute_ago.requests[name]
            entries.append(
                {
                    "name": name,
                    "target_ms": self._service.loader.targets[rank],
                    "queued": sum(classes[name] for classes in state.queued.values()),
                    "limit": limits[rank],
                    "requests_per_second": _rate(requests.requests - earlier.requests, now, before),
                    "positions_per_second": _rate(requests.positions - earlier.positions, now, before),
                    "queue_ms": _percentiles(requests.queue_seconds.since(minute.queue_seconds)),
                    "whole_ms": _percentiles(requests.seconds.since(minute.seconds)),
                }
            )
        return entries

    def _client_list(self, now: Reading) -> list[dict[str, Any]]:
        before = self._history.seconds_ago()

        def rate(session: ClientSession) -> float:
            evaluated = now.clients.get(session.client, 0)
            return _rate(evaluated - before.clients.get(session.client, 0), now, before)

        # Clients with similar rates stay in order of arrival, because rows that change places are hard to
        # read.
        rates = [(rate(session), session) for session in self._service.sessions]
        busiest = sorted(rates, key=lambda pair: -round(math.log2(1 + pair[0])))
        return [
            {
                **session.description(self._service.sockets),
                "class": PRIORITIES[session.rank] if session.rank >= 0 else "",
                "positions_per_second": positions,
            }
            for positions, session in busiest[:MOST_CLIENTS]
        ]

    def _history_steps(self) -> dict[str, Any]:
        steps = self._history.steps()
        return {
            "step_s": STEP_S,
            "positions_per_second": [round(step.positions / step.seconds, 1) for step in steps],
            "mean_batch": [
                round(step.positions / step.batches, 1) if step.batches else 0.0 for step in steps
            ],
        }

    # -- the counters ------------------------------------------------------------------------------------

    def _read(self) -> Reading:
        batches = self._service.metrics.batches
        sizes: dict[str, Histogram] = {}
        for (network, _), ran in batches.items():
            sizes.setdefault(network, Histogram(BATCH_EDGES)).add(ran.sizes)
        requests: dict[str, RequestTotals] = {name: RequestTotals() for name in PRIORITIES}
        for (name, _), answered in self._service.metrics.requests.items():
            requests[name].add(answered)
        return Reading(
            at=time.perf_counter(),
            positions=sum(ran.positions for ran in batches.values()),
            batches=sum(ran.batches for ran in batches.values()),
            busy_ms=self._service.dispatcher.busy_ms(),
            requests=requests,
            sizes=sizes,
            clients={session.client: session.positions for session in self._service.sessions},
        )


def _runs(network: ServedNetwork) -> list[dict[str, Any]]:
    """Return how each device runs a network: the curve and the recent batches."""
    return [
        {
            "device": runner.device.name,
            "backend": runner.backend.name,
            "standby": runner is network.standby,
            "in_use": runner.in_use,
            "knee": runner.model.knee,
            "measured": runner.model.measured,
            "largest": runner.model.largest,
            "known": runner.model.known,
            "curve": runner.model.curve(),
            "recent": list(runner.recent),
        }
        for runner in network.all_runners
    ]


def _devices(networks: Sequence[ServedNetwork]) -> list[dict[str, Any]]:
    """Return the dispatcher's data of each device, over all networks."""
    runners: dict[str, list[tuple[Runner, bool]]] = {}
    for network in networks:
        for runner in network.all_runners:
            runners.setdefault(runner.device.name, []).append((runner, runner is network.standby))
    return [_device(name, each) for name, each in runners.items()]


def _device(name: str, runners: Sequence[tuple[Runner, bool]]) -> dict[str, Any]:
    now = now_ms()
    first = runners[0][0]
    device = first.device
    out = next((runner for runner, _ in runners if not runner.in_use), None)
    last = None
    if device.last_batch is not None:
        positions, ms = device.last_batch
        ago_s = max(0.0, now - device.last_end_ms) / 1000
        last = {"positions": positions, "ms": round(ms, 4), "ago_s": round(ago_s, 3)}
    return {
        "name": name,
        "hardware": first.backend.device,
        "standby": all(standby for _, standby in runners),
        "running": sum(runner.running for runner, _ in runners),
        "last_batch": last,
        "in_use": out is None,
        "reason": "" if out is None else out.out_reason,
        "since": None if out is None else out.out_since,
        "tried_again_in_s": None
        if out is None or out.probe_at_ms == math.inf
        else round(max(0.0, out.probe_at_ms - now) / 1000, 1),
    }


def _rate(count: int, now: Reading, before: Reading) -> float:
    return round(count / (now.at - before.at), 1) if now.at > before.at else 0.0


def _percentiles(seconds: Histogram) -> dict[str, float | None]:
    """Return percentiles in milliseconds; None without requests."""
    found = {"p50": seconds.quantile(0.5), "p99": seconds.quantile(0.99)}
    return {name: None if value is None else float(f"{1000 * value:.3g}") for name, value in found.items()}

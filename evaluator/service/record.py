# SPDX-License-Identifier: GPL-3.0-or-later
"""A record of the parts of a running service, for modules that use several of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluator.backends.common.base import Backend
from evaluator.devices.metrics import Metrics, Stalls, State
from evaluator.devices.opening.loading import Loader
from evaluator.devices.running.dispatcher import Dispatcher
from evaluator.devices.running.sensing import Sensing
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.scheduler import QueueLimits
from evaluator.service.connections.access import Access
from evaluator.service.connections.transport import Sockets
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.networks import ServedNetworks
from evaluator.service.replies import Replies
from evaluator.service.sessions import Sessions
from evaluator.service.systemd import SystemdNotices
from protocol.wire.messages import PRIORITIES


@dataclass(slots=True)
class ServiceParts:
    """The parts of a service. Each part documents its threads; any thread may call the methods here.

    instance: random name of this run. max_request: maximum positions per request. max_connections: maximum
    clients. sensing: None if no sensors are read. tasks: functions that the I/O thread will call.
    """

    instance: str
    max_request: int
    max_connections: int
    metrics: Metrics
    loader: Loader
    access: Access
    sockets: Sockets
    sessions: Sessions
    replies: Replies
    dispatcher: Dispatcher
    networks: ServedNetworks
    manager: SystemdNotices
    life: LifeCycle
    sensing: Sensing | None
    tasks: deque[Callable[[], None]] = field(default_factory=deque)
    stalls: Stalls = field(default_factory=Stalls)

    def call(self, task: Callable[[], None]) -> None:
        """Call a function in the I/O thread."""
        self.tasks.append(task)
        self.sockets.wakeup.wake()

    def call_from_signal_handler(self, task: Callable[[], None]) -> None:
        """Like `call`, also for signal handlers."""
        self.tasks.append(task)
        self.sockets.wakeup.wake_from_signal_handler()

    def state(self) -> State:
        """Return the current state of the service."""
        dispatcher, sockets = self.dispatcher, self.sockets
        condition = self.life.condition(*dispatcher.troubles(), self.loader.doing())
        devices, serving = dispatcher.inspect(_devices)
        memory = {name: backend.memory() for name, backend in serving.items()}
        targets: dict[str, float] = dict(zip(PRIORITIES, self.loader.targets, strict=True))
        queued: Counter[str] = Counter()
        for classes in devices["queued"].values():
            queued.update(classes)
        batches = sum([each.batches for each in self.metrics.batches.values()])
        # The batches count as a class: while they end, one without answers does not end the readiness of all.
        stalled = self.stalls.look(
            time.perf_counter(),
            {**self.metrics.answered_requests, "": batches},
            {**queued, "": queued.total()},
            {**targets, "": next((targets[name] for name in PRIORITIES if queued[name]), 0.0)},
        )
        idle = stalled.pop("", "")
        return State(
            state="degraded" if idle and condition.state == "ready" else condition.state,
            since=condition.since,
            reason="; ".join(filter(None, (condition.reason, *stalled.values()))),
            ready=condition.ready and not idle,
            stalled=stalled,
            clients=len(self.sessions),
            connections=sockets.open_connections,
            device_memory={
                name: {"used": each[0], "total": each[1]} for name, each in memory.items() if each is not None
            },
            buffered_bytes=sockets.buffered_bytes,
            closed_connections=sockets.closed_connections,
            device_sensors={} if self.sensing is None else self.sensing.last(),
            busy_seconds={name: busy / 1000 for name, busy in dispatcher.busy_ms().items()},
            target_ms=targets,
            max_connections=self.max_connections,
            keys=self.sessions.usages,
            **devices,
        )


def _devices(
    networks: Sequence[ServedNetwork], limits: QueueLimits
) -> tuple[dict[str, Any], dict[str, Backend]]:
    """Return the fields of a State that describe queues and devices, and a backend of each device in use."""
    runners = [runner for network in networks for runner in network.all_runners]
    running: dict[str, int] = {}
    for runner in runners:
        running[runner.device.name] = running.get(runner.device.name, 0) + runner.running
    out = {runner.device.name for runner in runners if not runner.in_use}
    in_use = {name: name not in out for name in running}
    tuning = {runner.device.name: runner.device.tuning for runner in runners if runner.device.tuning}
    queued: dict[str, dict[str, int]] = {}
    for network in networks:  # Two have the same name while the former one of a reload has requests left.
        classes = queued.setdefault(network.info.name, dict.fromkeys(PRIORITIES, 0))
        for rank, name in enumerate(PRIORITIES):
            classes[name] += network.scheduler.positions_of(rank)
    curves = {
        network.info.name: {
            each.device.name: {what: getattr(each.model, what) for what in ("measured", "largest", "known")}
            for each in network.all_runners
        }
        for network in networks
    }
    found = {"queued": queued, "running": running, "in_use": in_use, "tuning": tuning, "curves": curves}
    return found, {runner.device.name: runner.backend for network in networks for runner in network.in_use}

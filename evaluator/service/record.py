# SPDX-License-Identifier: GPL-3.0-or-later
"""A record of the parts of a running service, for modules that use several of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.loading import Loader
from evaluator.devices.sensing import Sensing
from evaluator.metrics import Metrics, State
from evaluator.service.connections.access import Access
from evaluator.service.connections.transport import Sockets
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.networks import ServedNetworks
from evaluator.service.replies import Replies
from evaluator.service.sessions import Sessions
from evaluator.service.systemd import ServiceManager
from protocol.messages import PRIORITIES


@dataclass(slots=True)
class Service:
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
    manager: ServiceManager
    life: LifeCycle
    sensing: Sensing | None
    tasks: deque[Callable[[], None]] = field(default_factory=deque)

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
        devices = dispatcher.devices()
        return State(
            state=condition.state,
            since=condition.since,
            reason=condition.reason,
            ready=condition.ready,
            clients=len(self.sessions),
            connections=sockets.open_connections,
            queued=dispatcher.queued(),
            running={name: running for name, (running, _) in devices.items()},
            in_use={name: in_use for name, (_, in_use) in devices.items()},
            device_memory=dispatcher.device_memory(),
            buffered_bytes=sockets.buffered_bytes,
            closed_connections=sockets.closed_connections,
            tuning=dispatcher.tuning(),
            curves=dispatcher.curves(),
            device_sensors={} if self.sensing is None else self.sensing.last(),
            busy_seconds={name: busy / 1000 for name, busy in dispatcher.busy_ms().items()},
            target_ms={name: self.loader.targets.of(rank) for rank, name in enumerate(PRIORITIES)},
            max_connections=self.max_connections,
        )

# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a running service, as one record for the modules that use several of them."""

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
    """Each part says which threads may use it; the methods here are for any thread.

    instance: names the run of the service. max_request: most positions in one request. max_connections: most
    clients. sensing: None if no sensors are read. tasks: calls that wait for the I/O thread.
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
        """Have the I/O thread call a function."""
        self.tasks.append(task)
        self.sockets.wakeup.wake()

    def call_from_signal_handler(self, task: Callable[[], None]) -> None:
        """The same, also from a signal handler."""
        self.tasks.append(task)
        self.sockets.wakeup.wake_from_signal_handler()

    def state(self) -> State:
        """The state of the service at the moment."""
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

# SPDX-License-Identifier: GPL-3.0-or-later
"""The service as its owner uses it: assembled from its parts, bound to addresses, run, drained and stopped.

One I/O thread owns the sockets (io_loop.py). It decodes requests, handles them (handlers.py,
administration.py) and queues evaluations with the dispatcher. Devices compute on threads of their own. These
send the answers, or leave that to the I/O thread if it is awake (replies.py). Loading and unloading have
their own threads (networks.py), so that clients of other networks are not delayed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial

from evaluator.backends.common.base import Backend
from evaluator.devices.metrics import Metrics
from evaluator.devices.opening.loading import Loader
from evaluator.devices.running.dispatcher import Dispatcher
from evaluator.devices.running.sensing import Sensing
from evaluator.devices.running.watchdog import Patience
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.scheduler import QueueLimits
from evaluator.service.connections import hub_sockets
from evaluator.service.connections.access import Access
from evaluator.service.connections.hub_sockets import HubSockets
from evaluator.service.connections.limits import ConnectionLimits
from evaluator.service.connections.transport import Sockets
from evaluator.service.connections.zeromq import ZeroMqSockets
from evaluator.service.io_loop import IoLoop
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.networks import NetworkToLoad, ServedNetworks
from evaluator.service.record import ServiceParts
from evaluator.service.reload import reconfigure
from evaluator.service.replies import Replies
from evaluator.service.sessions import Sessions
from evaluator.service.systemd import SystemdNotices
from evaluator.service.tracing import Tracing
from evaluator.settings import Settings
from protocol.errors import Draining, NotAllowed
from protocol.wire.messages import NetworkInfo

log = logging.getLogger("evaluator.service")


class EvaluatorService:
    """An evaluator on its sockets.

    loader: opens networks. initial: networks to load at start; the first is the default. max_request: maximum
    positions per request. limits: of the queues. connections: limits of clients and of unauthenticated
    connections. private: serve only the program that started this one, at one ipc address, and read no
    sensors. access: permissions (default: those of the default settings). patience: time limits for devices.
    on_ready: called from a thread with the networks' descriptions once the initial ones are loaded.
    on_failed: called with the exception if one cannot be loaded. on_hung: called from a thread with a reason
    if the driver of a device does not return. trace_to: URL of an OpenTelemetry collector; empty for none.

    Call `bind`, then `run`, which returns after `stop` (from any thread) or after a client drains the
    service. `record` holds the parts.
    """

    def __init__(
        self,
        loader: Loader,
        initial: Sequence[NetworkToLoad],
        *,
        max_request: int = 4096,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 - it cannot be changed
        connections: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - immutable
        private: bool = False,
        access: Access | None = None,
        patience: Patience = Patience(),  # noqa: B008 - immutable
        on_ready: Callable[[tuple[NetworkInfo, ...]], None] | None = None,
        on_failed: Callable[[Exception], None] | None = None,
        on_hung: Callable[[str], None] = lambda reason: None,
        trace_to: str = "",
    ) -> None:
        self._initial = initial
        self._on_ready = on_ready
        self._on_failed = on_failed
        metrics, access, instance = Metrics(), access or Access(), secrets.token_hex(8)
        self._tracing = Tracing(trace_to, instance) if trace_to else None
        sockets = _open_sockets(max_request, connections, access, metrics, private=private)
        sessions = Sessions(access, sockets, lambda client: dispatcher.remove_client(client))
        replies = Replies(instance, metrics, sessions, sockets, self._tracing)

        def networks_changed() -> None:
            self._loop.handlers.announce_networks()

        def call(task: Callable[[], None]) -> None:
            self.record.call(task)

        dispatcher = Dispatcher(
            replies.post, metrics, limits, patience, on_hung, lambda: call(networks_changed)
        )
        manager = SystemdNotices()
        self.record = ServiceParts(
            instance=instance,
            max_request=max_request,
            max_connections=connections.connections,
            metrics=metrics,
            loader=loader,
            access=access,
            sockets=sockets,
            sessions=sessions,
            replies=replies,
            dispatcher=dispatcher,
            networks=ServedNetworks(loader, dispatcher, call, networks_changed),
            manager=manager,
            life=LifeCycle(sessions, replies, dispatcher, manager),
            sensing=None if private else Sensing(partial(dispatcher.inspect, _backends)),
        )
        self._loop = IoLoop(self.record, private=private)

    def bind(self, address: str) -> str:
        """Listen at an address and return it as clients must name it. Raises AddressError."""
        return self.record.sockets.bind(address)

    def run(self) -> None:
        """Serve until stopped or drained. Frees all resources before it returns."""
        self.record.networks.load_initial(self._initial, self._become_ready, self._fail_to_start)
        if self.record.sensing is not None:
            self.record.sensing.start()
        try:
            self._loop.run()
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return after the batches in flight. Queued requests are answered with `draining`. Any
        thread or signal handler may call this, any number of times."""
        self.record.life.ending = True
        self.record.sockets.wakeup.wake_from_signal_handler()

    def stop_at_once(self) -> None:
        """Like `stop`, without waiting for the batches in flight."""
        self.record.dispatcher.hurry()
        self.stop()

    def close(self) -> None:
        """Free all resources. `run` calls this when it ends. Idempotent."""
        service = self.record
        if service.sockets.closed:
            return
        service.life.ending = True
        if service.sensing is not None:
            service.sensing.stop()
        service.dispatcher.stop()
        service.replies.send_waiting()
        ended = Draining("this evaluator has ended; connect to another one")
        for session in service.sessions:
            for identity in list(session.requests):
                service.replies.send_error(session.client, identity, ended)
        service.sockets.close()
        if self._tracing is not None:
            self._tracing.close()

    def drain(self, reason: str = "it was asked to", timeout_s: float | None = None) -> None:
        """Accept nothing new, finish the queued requests, then make `run` return. timeout_s: maximum time for
        that. Any thread or signal handler may call this."""
        self.record.call_from_signal_handler(lambda: self.record.life.drain(reason, timeout_s))

    def reconfigure(self, before: Settings, settings: Settings, networks: Sequence[NetworkToLoad]) -> None:
        """Apply new settings, as far as a running service can, and reload the networks' files. Any thread or
        signal handler may call this."""
        task = partial(reconfigure, self.record, before, settings, networks)
        self.record.call_from_signal_handler(task)

    def log_state(self) -> None:
        """Log the state. Any thread or signal handler may call this."""

        def work() -> None:
            state = self.record.state()
            log.info(
                "%s: %d clients, %d positions queued, %g positions/s%s",
                state.state,
                state.clients,
                state.queued_positions,
                round(self.record.metrics.positions_per_second, 1),
                f"; {state.reason}" if state.reason else "",
            )

        self.record.call_from_signal_handler(work)

    def _fail_to_start(self, error: Exception) -> None:
        if self._on_failed is not None:
            self._on_failed(error)
        else:
            log.error("cannot start: %s", error)
        self.stop()

    def _become_ready(self) -> None:
        self.record.life.load()
        if self.record.sensing is not None:  # else one program starts, and its network is measured first
            self.record.loader.serving = True
            self.record.sensing.look()
        self.record.manager.ready("ready")
        self._loop.handlers.welcome_waiting()
        if self._on_ready is not None:
            self._on_ready(self.record.networks.infos())


def _open_sockets(
    max_request: int, limits: ConnectionLimits, access: Access, metrics: Metrics, *, private: bool
) -> Sockets:
    on_refused = partial(metrics.error, NotAllowed.code)
    if hub_sockets.AVAILABLE:
        return HubSockets(max_request, limits, access, on_refused, private=private)
    return ZeroMqSockets(max_request, limits, access, on_refused)


def _backends(networks: Sequence[ServedNetwork], limits: QueueLimits) -> dict[str, Backend]:
    """Return one backend of each device, including excluded devices and standbys."""
    return {runner.device.name: runner.backend for network in networks for runner in network.all_runners}

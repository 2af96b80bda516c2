"""The service as its owner has it: built of its parts, listening, running, told to drain or to stop.

One I/O thread owns the sockets (io_loop.py): it decodes requests, does what they ask for (handlers.py,
administration.py) and queues evaluations with the dispatcher. Devices compute on threads of theirs; those
send the answers, or have the I/O thread send them if that one is awake (replies.py). Loading and unloading
run on threads of their own (networks.py), so that clients of other networks notice nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from evaluator.backends.base import Backend
from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.loading import Loader
from evaluator.devices.sensing import Sensing
from evaluator.devices.watchdog import Patience
from evaluator.metrics import Metrics, State
from evaluator.scheduling.admission import QueueLimits
from evaluator.scheduling.requests import Request
from evaluator.service.administration import Administration
from evaluator.service.connections import unix_sockets
from evaluator.service.connections.access import Access
from evaluator.service.connections.gate import ConnectionLimits
from evaluator.service.connections.transport import Sockets
from evaluator.service.connections.unix_sockets import UnixSockets
from evaluator.service.connections.zeromq import ZeroMqSockets
from evaluator.service.draining import Drain
from evaluator.service.fast_path import FastPath
from evaluator.service.handlers import Handlers, ServiceInfo
from evaluator.service.io_loop import IoLoop
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.membership import Membership
from evaluator.service.networks import NetworkToLoad, ServedNetworks
from evaluator.service.overview import Overview
from evaluator.service.reload import reconfigure
from evaluator.service.replies import Replies
from evaluator.service.sessions import Sessions
from evaluator.service.systemd import ServiceManager
from evaluator.settings import Settings
from protocol.errors import Draining, NotAllowed, RemoteError
from protocol.keys.notation import KeysError
from protocol.messages import PRIORITIES, NetworkInfo

log = logging.getLogger("evaluator.service")


class EvaluatorService:
    """An evaluator on its sockets.

    loader: opens networks. initial: networks to load at start; the first is the default. max_request: most
    positions in one request. limits: of the queues. connections: limits of clients, and of others that find
    an address. private: the service is for the program that has started it, at one ipc address, and reads no
    sensors. access: who may do what; by default what the defaults of all settings say. patience: with
    devices. on_ready: called from a thread once the initial networks are loaded, with their descriptions;
    on_failed with the exception when one could not be. on_hung: called from a thread, with a reason, for a
    device whose driver does not return.

    `bind` addresses, then `run` until `stop` (from any thread), or until a client drains it.
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
    ) -> None:
        self.metrics = Metrics()
        self._initial = initial
        self._loader = loader
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._life = LifeCycle()
        self._manager = ServiceManager()
        self._dispatcher = Dispatcher(
            self._post, self.metrics, limits, patience, on_hung, lambda: self._call(self._networks_changed)
        )
        self._networks = ServedNetworks(loader, self._dispatcher, self._call, self._networks_changed)
        self._sensing = None if private else Sensing(self._backends)
        self._access = access or Access()
        self._max_connections = connections.connections
        self._sockets = self._open_sockets(max_request, connections, private=private)
        self._sessions = Sessions()
        self._membership = Membership(self._access, self._sessions, self._sockets, self._dispatcher)
        instance = secrets.token_hex(8)
        self._replies = Replies(
            instance, self.metrics, self._sessions, self._sockets, self._membership.forget
        )
        self._drain = Drain(self._life, self._sessions, self._replies, self._manager, self.stop_at_once)
        self._overview = Overview(
            instance, self.metrics, loader, self._dispatcher, self._networks, self._sessions
        )
        fast = self._new_fast_path(instance)
        self._handlers = self._new_handlers(ServiceInfo(instance, max_request, self.state), fast)
        self._loop = IoLoop(
            self._life,
            self._sockets,
            self._membership,
            self._dispatcher,
            self._replies,
            self._drain,
            self.metrics,
            self._manager,
            self._handlers.handle,
            fast,
        )

    def _open_sockets(self, max_request: int, limits: ConnectionLimits, *, private: bool) -> Sockets:
        if private and unix_sockets.AVAILABLE:
            return UnixSockets(max_request, limits, self._access)

        def on_refused() -> None:
            self.metrics.error(NotAllowed.code)

        return ZeroMqSockets(max_request, limits, self._access, on_refused, gated=not private)

    def _new_fast_path(self, instance: str) -> FastPath | None:
        if not isinstance(self._sockets, UnixSockets):
            return None
        return FastPath(
            instance,
            self._sockets,
            self._sessions,
            self._networks,
            self._dispatcher,
            self.metrics,
            self._life,
        )

    def _new_handlers(self, info: ServiceInfo, fast: FastPath | None) -> Handlers:
        administration = Administration(
            self._networks,
            self._sessions,
            self._life,
            self._replies.send,
            self._replies.send_error,
            self._drain.begin_for,
            self._access,
            self._membership.reread_keys,
        )
        return Handlers(
            info,
            self.metrics,
            self._life,
            self._sockets,
            self._sessions,
            self._membership,
            self._networks,
            self._dispatcher,
            self._replies,
            administration,
            (lambda session, network: None) if fast is None else fast.saw,
        )

    # -- for the owner ---------------------------------------------------------------------------------

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it. Raises AddressError."""
        return self._sockets.bind(address)

    def run(self) -> None:
        """Serve until stopped or drained. Frees everything before it returns."""
        self._networks.load_initial(self._initial, self._become_ready, self._fail_to_start)
        if self._sensing is not None:
            self._sensing.start()
        try:
            self._loop.run()
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return after the batches in flight; what is queued is answered with `draining`. May be
        called from any thread or a signal handler, any number of times."""
        self._life.end()
        self._sockets.wakeup.wake_from_signal_handler()

    def stop_at_once(self) -> None:
        """The same without waiting for the batches in flight."""
        self._dispatcher.hurry()
        self.stop()

    def close(self) -> None:
        """Free everything; `run` does so itself when it ends. Idempotent."""
        if self._sockets.closed:
            return
        self._life.end()
        if self._sensing is not None:
            self._sensing.stop()
        self._dispatcher.stop()
        self._replies.send_waiting()
        for client, identity in self._sessions.unanswered():
            self._replies.send_error(
                client, identity, Draining("this evaluator has ended; connect to another one")
            )
        self._sockets.close()

    def drain(self, reason: str = "it was asked to", timeout_s: float | None = None) -> None:
        """Take nothing new, finish what is queued, then make `run` return, after timeout_s seconds whatever
        is left. May be called from any thread or a signal handler."""
        self._loop.call_from_signal_handler(lambda: self._drain.begin(reason, timeout_s))

    def reconfigure(self, before: Settings, settings: Settings, networks: Sequence[NetworkToLoad]) -> None:
        """Go by other settings than before, as far as that is possible while serving, and look at the
        networks' files again. May be called from any thread or a signal handler."""

        def work() -> None:
            serving = self._life.loaded and not self._life.draining
            if serving:
                self._manager.reloading()
            reconfigure(before, settings, self._dispatcher, self._loader, self._access)
            try:
                self._membership.reread_keys()
            except KeysError as error:
                log.error("the list of clients stays as it is: %s", error)
            if not self._life.draining:
                self._networks.configure(networks)
            if serving:
                self._manager.ready("ready")

        self._loop.call_from_signal_handler(work)

    def log_state(self) -> None:
        """Log the state. May be called from any thread or a signal handler."""

        def work() -> None:
            state = self.state()
            log.info(
                "%s: %d clients, %d positions queued, %g positions/s%s",
                state.state,
                state.clients,
                state.queued_positions,
                round(self.metrics.positions_per_second, 1),
                f"; {state.reason}" if state.reason else "",
            )

        self._loop.call_from_signal_handler(work)

    @property
    def stopping(self) -> bool:
        """Whether `run` is about to return."""
        return self._life.ending

    def state(self) -> State:
        """The state of the service at the moment. Any thread may ask for it."""
        condition = self._life.condition(*self._dispatcher.troubles(), self._loader.doing())
        devices = self._dispatcher.devices()
        return State(
            state=condition.state,
            since=condition.since,
            reason=condition.reason,
            ready=condition.ready,
            clients=len(self._sessions),
            connections=self._sockets.open_connections,
            queued=self._dispatcher.queued(),
            running={name: running for name, (running, _) in devices.items()},
            in_use={name: in_use for name, (_, in_use) in devices.items()},
            device_memory=self._dispatcher.device_memory(),
            buffered_bytes=self._sockets.buffered_bytes,
            closed_connections=self._sockets.closed_connections,
            tuning=self._dispatcher.tuning(),
            curves=self._dispatcher.curves(),
            device_sensors={} if self._sensing is None else self._sensing.last(),
            busy_seconds={name: busy / 1000 for name, busy in self._dispatcher.busy_ms().items()},
            target_ms={name: self._loader.targets.of(rank) for rank, name in enumerate(PRIORITIES)},
            max_connections=self._max_connections,
        )

    def watched(self) -> AbstractContextManager[None]:
        """Keep what `overview` tells of the recent past, while the context lasts."""
        return self._overview.running()

    def overview(self) -> dict[str, Any]:
        """The document that the page shows. Any thread may ask for it."""
        return self._overview.document(self.state(), self._sockets.addresses)

    # -- other threads ---------------------------------------------------------------------------------

    def _backends(self) -> dict[str, Backend]:
        """One on each device, those that are left out and standbys too."""
        return self._dispatcher.inspect(
            lambda networks, limits: {
                runner.device.name: runner.backend for network in networks for runner in network.all_runners
            }
        )

    def _post(self, finished: Sequence[tuple[Request, RemoteError | None]]) -> None:
        self._replies.post(finished)
        if self._life.draining:  # It may have been the last one.
            self._sockets.wakeup.wake()

    def _call(self, task: Callable[[], None]) -> None:
        self._loop.call(task)

    def _networks_changed(self) -> None:
        self._handlers.announce_networks()

    def _fail_to_start(self, error: Exception) -> None:
        if self._on_failed is not None:
            self._on_failed(error)
        else:
            log.error("cannot start: %s", error)
        self.stop()

    def _become_ready(self) -> None:
        self._life.load()
        if self._sensing is not None:
            self._sensing.look()
        self._manager.ready("ready")
        self._handlers.welcome_waiting()
        if self._on_ready is not None:
            self._on_ready(self._networks.infos())

"""The service: what each message does. One I/O thread owns the sockets; devices compute on threads of theirs.

The I/O thread decodes requests and queues them with the dispatcher; worker threads send the answers, or have
the I/O thread send them if that one is awake (answers.py). A small batch for an idle device the I/O thread
runs itself, while another one stands by (turns.py). Loading and unloading run on threads of their own
(networks.py), so that clients of other networks notice nothing.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, get_args

from evaluator._core import is_sound
from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.failover import Attempt
from evaluator.devices.loading import Loader
from evaluator.devices.runners import now_ms
from evaluator.devices.watchdog import Patience
from evaluator.metrics import Metrics, State
from evaluator.scheduling.admission import QueueLimits
from evaluator.scheduling.requests import Request
from evaluator.service import administration, unix_sockets
from evaluator.service.access import Access
from evaluator.service.administration import Administration
from evaluator.service.answers import Answers
from evaluator.service.gate import ConnectionLimits
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.networks import NetworkToLoad, ServedNetworks
from evaluator.service.notify import ServiceManager
from evaluator.service.overview import Overview
from evaluator.service.reconfiguration import reconfigure
from evaluator.service.sessions import Session, Sessions, printable
from evaluator.service.sockets import ZeroMqSockets
from evaluator.service.transport import GONE, Arrived, Origin, Sockets
from evaluator.service.turns import Turns
from evaluator.service.unix_sockets import UnixSockets
from evaluator.settings import Settings
from protocol import messages
from protocol.batch import PositionBatch
from protocol.codec import (
    check_batch,
    decode_request,
    peek_id,
)
from protocol.compression import offered
from protocol.errors import (
    BadRequest,
    DeadlineExceeded,
    Draining,
    DuplicateId,
    NotAllowed,
    NotReady,
    RemoteError,
    UnsupportedVersion,
)
from protocol.host.version import __version__
from protocol.keys.notation import KeysError
from protocol.messages import PRIORITIES, SUPPORTED_VERSIONS, NetworkInfo

log = logging.getLogger("evaluator.service")

SERVER = f"wavefront-evaluator {__version__}"

MESSAGES_PER_ROUND = 64
"""Messages taken in before answers are sent, so that a flood of requests does not hold answers up."""

FAULT_PAUSE_S = 0.1
"""Pause after a fault of the service's own loop: it must not spin."""

ROUND_MS = 1.0
"""No further message is taken in after this long in a round: a status takes the time of twenty pings, and the
devices hear of new requests after the round. ZeroMQ takes one message of each client in turn."""


class EvaluatorService:
    """An evaluator on its sockets.

    loader: opens networks. initial: networks to load at start; the first is the default. max_request: most
    positions in one request. limits: of the queues. connections: limits of clients, and of whoever else finds
    an address. private: the service is for the program that has started it, at one ipc address. access: who
    may do what; by default what the defaults of all settings say. patience: with devices. on_ready: called
    from a thread once the initial networks are loaded, with their descriptions; on_failed with the exception
    when one could not be.

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
    ) -> None:
        self.metrics = Metrics()
        self._compression = offered()
        self._instance = secrets.token_hex(8)
        self._initial = initial
        self._loader = loader
        self._max_request = max_request
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._dispatcher = Dispatcher(self._post, self.metrics, limits, patience)
        self._access = access or Access()
        self._sockets = self._open_sockets(connections, private=private)
        self._sessions = Sessions()
        self._answers = Answers(self._instance, self.metrics, self._sessions, self._sockets, self._forget)
        self._networks = ServedNetworks(loader, self._dispatcher, self._call)
        self._life = LifeCycle()
        self._overview = Overview(
            self._instance, self.metrics, loader, self._dispatcher, self._networks, self._sessions
        )
        self._administration = Administration(
            self._networks,
            self._sessions,
            self._life,
            self._answers.send,
            self._answers.send_error,
            self._drain,
            self._access,
            self._reread_clients,
        )
        self._drain_waiters: list[tuple[bytes, int]] = []
        self._drained_by_ms: float | None = None
        self._manager = ServiceManager()
        self._stopping = False
        self._turns = Turns()
        # Filled by other threads, emptied by the I/O thread: things to do there.
        self._tasks: deque[Callable[[], None]] = deque()

    def _open_sockets(self, limits: ConnectionLimits, *, private: bool) -> Sockets:
        if private and unix_sockets.AVAILABLE:
            return UnixSockets(self._max_request, limits, self._access)

        def on_refused() -> None:
            self.metrics.error(NotAllowed.code)

        return ZeroMqSockets(self._max_request, limits, self._access, on_refused, gated=not private)

    # -- for the owner ---------------------------------------------------------------------------------

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it. Raises AddressError."""
        return self._sockets.bind(address)

    def run(self) -> None:
        """Serve until stopped or drained. Frees everything before it returns."""
        self._networks.load_initial(self._initial, self._become_ready, self._fail_to_start)
        try:
            self._turns.run(self._step)
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return after the batches under way; what is queued is answered with `draining`. May be
        called from any thread or a signal handler, any number of times."""
        self._stopping = True
        self._sockets.wakeup.wake_from_signal_handler()

    def close(self) -> None:
        """Free everything; `run` does so itself when it ends. Idempotent."""
        if self._sockets.closed:
            return
        self._stopping = True
        self._dispatcher.stop()
        self._answers.send_waiting()
        for client, identity in self._sessions.unanswered():
            self._answers.send_error(
                client, identity, Draining("this evaluator has ended; connect to another one")
            )
        self._sockets.close()

    def stop_at_once(self) -> None:
        """The same without waiting for the batches under way."""
        self._dispatcher.hurry()
        self.stop()

    def drain(self, reason: str = "it was asked to", timeout_s: float | None = None) -> None:
        """Take nothing new, finish what is queued, then make `run` return, after timeout_s seconds whatever
        is left. May be called from any thread or a signal handler."""
        self._tasks.append(lambda: self._start_drain(reason, timeout_s))
        self._sockets.wakeup.wake_from_signal_handler()

    def reconfigure(self, before: Settings, settings: Settings, networks: Sequence[NetworkToLoad]) -> None:
        """Go by other settings than before, as far as that is possible while serving, and look at the
        networks' files again. May be called from any thread or a signal handler."""

        def work() -> None:
            serving = self._life.loaded and not self._life.draining
            if serving:
                self._manager.reloading()
            reconfigure(before, settings, self._dispatcher, self._loader, self._access)
            try:
                self._reread_clients()
            except KeysError as error:
                log.error("the list of clients stays as it is: %s", error)
            if not self._life.draining:
                self._networks.configure(networks)
            if serving:
                self._manager.ready("ready")

        self._tasks.append(work)
        self._sockets.wakeup.wake_from_signal_handler()

    def tell_state(self) -> None:
        """Have the state logged. May be called from any thread or a signal handler."""

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

        self._tasks.append(work)
        self._sockets.wakeup.wake_from_signal_handler()

    @property
    def stopping(self) -> bool:
        """Whether `run` is about to return."""
        return self._stopping

    def state(self) -> State:
        """The state of the service at the moment. Any thread may ask for it."""
        condition = self._life.condition(*self._dispatcher.troubles())
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
        )

    def watched(self) -> AbstractContextManager[None]:
        """Keep what `overview` tells of the recent past, while the context lasts."""
        return self._overview.running()

    def overview(self) -> dict[str, Any]:
        """The document that the page shows. Any thread may ask for it."""
        return self._overview.document(self.state(), self._sockets.addresses)

    # -- the I/O thread --------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Wait for something to do and do it; False when the service is to end."""
        if self._stopping:
            return False
        try:
            self._round()
        except Exception:  # memory, most likely: the next round may find some
            log.exception("a round of the service was not finished")
            time.sleep(FAULT_PAUSE_S)
        return not self._stopping

    def _round(self) -> None:
        deadline = self._dispatcher.next_deadline_ms()
        self._sockets.wait(self._poll_timeout(deadline))
        self._manager.alive()
        while self._tasks:
            self._tasks.popleft()()
        self._answers.send_waiting()
        self._forget_the_gone()
        self._sockets.tell()
        self._sockets.authenticate()
        self._receive()
        if deadline is not None and deadline <= now_ms():
            self._expire()
        if self._life.draining and not self._stopping:
            self._finish_drain()
        # Last, as this thread may not be the I/O thread any more when the batch is done.
        attempt = self._dispatcher.announce(here=self._turns.can_leave)
        if attempt is not None:
            self._run_here(attempt)

    def _run_here(self, attempt: Attempt) -> None:
        """Run a batch, and send its answers unless another thread is the I/O thread by then."""
        self._turns.leave()
        away = True

        def post(finished: Sequence[tuple[Request, RemoteError | None]]) -> None:
            nonlocal away
            away = False
            if self._turns.come_back():
                self._sockets.wakeup.awake()
                self._answers.send_finished(finished)
                if self._life.draining:  # It may have been the last one.
                    self._sockets.wakeup.wake()
            else:
                self._post(finished)

        try:
            self._dispatcher.run_here(attempt, post)
        finally:
            if away and self._turns.come_back():
                self._sockets.wakeup.awake()
                self._answers.send_waiting()

    def _poll_timeout(self, deadline: float | None) -> int:
        if self._answers.waiting or self._tasks:
            return 0
        if self._drained_by_ms is not None:
            deadline = min(deadline or self._drained_by_ms, self._drained_by_ms)
        longest = min(1000.0, self._manager.every_ms)
        if deadline is None:
            return int(longest)
        return int(max(0, min(longest, deadline - now_ms() + 1)))

    def _receive(self) -> None:
        end = now_ms() + ROUND_MS
        for number in range(MESSAGES_PER_ROUND):
            if number and now_ms() >= end:
                break
            arrived = self._sockets.receive()
            if arrived is None:
                return
            try:
                self._handle(arrived)
                continue
            except RemoteError as refused:
                # Its traceback holds this frame, which holds it: the message would stay until collected.
                error = refused.with_traceback(None)
                if isinstance(refused, BadRequest):
                    self.metrics.bad_messages.add()
            except Exception:  # a fault of ours with one message must not end the service for everybody
                log.exception("a message could not be handled")
                error = BadRequest("the evaluator could not handle this message; its log says more")
            self._answers.send_error(arrived.client, peek_id(arrived.frames), error)
        # More may be waiting: look again without polling.
        self._sockets.wakeup.wake()

    def _handle(self, arrived: Arrived) -> None:
        client = arrived.client
        message = decode_request(arrived.frames, self._max_request, _check)
        session = self._sessions.of(client)
        if session is None:
            self._forget_the_gone()  # whose descriptor may be this one's now
            origin = self._sockets.origin(arrived)
            if origin.address == GONE and not isinstance(message, administration.Request):
                return  # Nobody waits for the answer, and thousands may come of one who has left.
            session = self._new_session(client, self._sockets.user(arrived), origin)
        if isinstance(message, administration.Request):
            # Not the session's: ZeroMQ lets the next connection have the identity of one that has ended.
            self._administration.handle(client, message, self._sockets.user(arrived))
        else:
            _HANDLERS[type(message)](self, session, message)

    def _new_session(self, client: bytes, user: str, origin: Origin) -> Session:
        """A session for who sent a message. Raises NotAllowed for one that has lost its right since it
        came."""
        if not self._access.may_use(user):
            self._sockets.hang_up(origin.descriptor)
            raise NotAllowed("the key of this client was revoked")
        return self._sessions.add(client, *origin, user=user, key=self._access.name(user))

    # -- one method for each kind of message -----------------------------------------------------------

    def _evaluate(self, session: Session, message: messages.Evaluate) -> None:
        if self._life.draining:
            raise Draining("this evaluator is shutting down; connect to another one")
        if message.id in session.requests:
            raise DuplicateId(f"another request with id {message.id} is in flight, and goes on")
        network = self._networks.find(message.network, session.network)
        now = now_ms()
        deadline = None if message.deadline_ms is None else now + message.deadline_ms
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed on arrival")
        rank = PRIORITIES.index(message.priority)
        request = Request(session.client, message.id, message.batch, rank, now, deadline)
        session.charge(request)
        try:
            self._dispatcher.submit(network, request)
        except BaseException:
            session.release(request)
            raise
        session.requests[message.id] = (request, network)

    def _cancel(self, session: Session, message: messages.Cancel) -> None:
        entry = session.requests.get(message.id)
        if entry is not None and self._dispatcher.cancel(entry[1], entry[0]):
            del session.requests[message.id]
            session.release(entry[0])
            self.metrics.cancelled.add()
            self._answers.send(session.client, messages.Cancelled(message.id))

    def _hello(self, session: Session, message: messages.Hello) -> None:
        if self._life.draining:
            raise Draining("this evaluator is shutting down; connect to another one")
        if not set(message.versions) & set(SUPPORTED_VERSIONS):
            ours = ", ".join(map(str, SUPPORTED_VERSIONS))
            raise UnsupportedVersion(
                f"client speaks versions {list(message.versions)}, this evaluator {ours}: update one"
            )
        session.name, session.greeted = printable(message.client), True
        if self._life.loaded:
            self._welcome(session, message.id)
        elif (
            session.hello
        ):  # Each would cost memory now, and a welcome in the moment when all others get theirs.
            raise NotReady("another hello of this client waits already, until the networks are loaded")
        else:
            session.hello = message.id

    def _welcome(self, session: Session, identity: int) -> None:
        state = self.state()
        session.network = self._networks.default
        welcome = messages.Welcome(
            identity,
            version=SUPPORTED_VERSIONS[-1],
            server=SERVER,
            max_batch=self._max_request,
            networks=self._networks.infos(),
            state=state.state,
            reason=state.reason,
            default=session.network,
            aliases=self._networks.aliases,
            instance=self._instance,
            compression=self._compression,
        )
        self._answers.send(session.client, welcome)

    def _ping(self, session: Session, message: messages.Ping) -> None:
        self._answers.send(session.client, messages.Pong(message.id))

    def _status(self, session: Session, message: messages.Status) -> None:
        state, infos = self.state(), self._networks.infos()
        reply = messages.StatusReply(
            message.id,
            live=True,
            ready=state.ready,
            draining=self._life.draining,
            networks=infos,
            metrics=self.metrics.status(state),
            state=state.state,
            since=state.since,
            reason=state.reason,
            aliases=self._networks.aliases,
        )
        self._answers.send(session.client, reply)

    # -- what is done without being asked --------------------------------------------------------------

    def _expire(self) -> None:
        for request in self._dispatcher.expire():
            assert isinstance(request.client, bytes)
            self._sessions.finish(request.client, request.id, answered=False)
            error = DeadlineExceeded("still queued when its deadline passed")
            self._answers.send_error(request.client, request.id, error)

    def _start_drain(self, reason: str, timeout_s: float | None = None) -> None:
        if self._life.drain(reason):
            log.info("draining: %s", reason)
            self._manager.stopping()
        if timeout_s is not None:
            self._drained_by_ms = now_ms() + 1000 * timeout_s
        for session in self._sessions:
            if session.hello:
                refused = Draining("this evaluator is shutting down")
                self._answers.send_error(session.client, session.hello, refused)
                session.hello = 0
        for client in self._sessions.greeted():
            self._answers.send_error(
                client, 0, Draining("this evaluator is shutting down; connect to another one")
            )

    def _finish_drain(self) -> None:
        if self._sessions.busy or self._answers.waiting:
            if self._drained_by_ms is not None and now_ms() >= self._drained_by_ms:
                log.warning("the time to finish is over: what is left is answered with an error")
                self.stop_at_once()
            return
        for client, identity in self._drain_waiters:
            self._answers.send(client, messages.Drained(identity))
        self._stopping = True

    def _drain(self, client: bytes, identity: int) -> None:
        self._drain_waiters.append((client, identity))
        self._start_drain("a client asked for it")

    def _reread_clients(self) -> None:
        """Read the list of clients again, and cut off who is not on it any more. Raises KeysError."""
        self._access.reload()
        for session in self._sessions:
            if self._access.may_use(session.user):
                session.key = self._access.name(session.user)
                continue
            log.warning("the key of %s (%s) was revoked: it is cut off", session.key, session.name)
            self._sockets.hang_up(session.descriptor)
            self._forget(session.client)

    def _forget_the_gone(self) -> None:
        for descriptor in self._sockets.connections():
            session = self._sessions.on(descriptor)
            if session is not None:
                self._forget(session.client)

    def _forget(self, client: bytes) -> None:
        self._sessions.forget(client)
        self._dispatcher.remove_client(client)

    # -- other threads ---------------------------------------------------------------------------------

    def _post(self, finished: Sequence[tuple[Request, RemoteError | None]]) -> None:
        self._answers.post(finished)
        if self._life.draining:  # It may have been the last one.
            self._sockets.wakeup.wake()

    def _call(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        self._sockets.wakeup.wake()

    def _fail_to_start(self, error: Exception) -> None:
        if self._on_failed is not None:
            self._on_failed(error)
        else:
            log.error("cannot start: %s", error)
        self.stop()

    def _become_ready(self) -> None:
        self._life.load()
        self._manager.ready("ready")
        for session in self._sessions:
            if session.hello:
                self._welcome(session, session.hello)
                session.hello = 0
        if self._on_ready is not None:
            self._on_ready(self._networks.infos())


def _check(batch: PositionBatch) -> None:
    """Raise BadRequest, naming the field, for a batch that cannot be evaluated."""
    if not is_sound(batch):
        check_batch(batch)


_HANDLERS: dict[type[Any], Callable[[EvaluatorService, Session, Any], None]] = {
    messages.Evaluate: EvaluatorService._evaluate,
    messages.Cancel: EvaluatorService._cancel,
    messages.Hello: EvaluatorService._hello,
    messages.Ping: EvaluatorService._ping,
    messages.Status: EvaluatorService._status,
}

assert {*_HANDLERS, *get_args(administration.Request)} == {*get_args(messages.Request)}, "all have a handler"

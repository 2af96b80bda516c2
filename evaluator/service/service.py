"""The service: what each message does. One I/O thread owns the sockets; devices compute on threads of theirs.

The I/O thread decodes requests and queues them with the dispatcher; worker threads hand finished requests to
`_post`, which encodes and sends the answers there, or has the I/O thread send them if that one is awake.
Loading and unloading run on threads of their own (evaluator/service/networks.py), so that clients of other
networks notice nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, get_args

import zmq

from evaluator._core import is_sound
from evaluator.metrics import Metrics, State
from evaluator.scheduling.admission import QueueLimits
from evaluator.scheduling.dispatcher import Dispatcher
from evaluator.scheduling.loading import Loader
from evaluator.scheduling.requests import Request
from evaluator.scheduling.runners import now_ms
from evaluator.service.networks import NetworkToLoad, ServedNetworks
from evaluator.service.sessions import Session, Sessions
from evaluator.service.sockets import Delivery, ServiceSockets, is_local
from protocol import messages
from protocol.batch import PositionBatch
from protocol.codec import (
    Frame,
    check_batch,
    decode_request,
    encode,
    encode_result,
    max_message_bytes,
    peek_id,
)
from protocol.errors import (
    BadRequest,
    DeadlineExceeded,
    Draining,
    LoadFailed,
    RemoteError,
    UnsupportedVersion,
)
from protocol.host.version import __version__
from protocol.messages import PRIORITIES, SUPPORTED_VERSIONS, NetworkInfo

log = logging.getLogger("evaluator.service")

SERVER = f"wavefront-evaluator {__version__}"

MESSAGES_PER_ROUND = 64
"""Messages taken in before answers are sent, so that a flood of requests does not hold answers up."""

_ADMINISTRATION = (messages.Load, messages.Unload, messages.Drain)
"""Requests that change the service for everybody."""


class EvaluatorService:
    """An evaluator on its sockets.

    loader: opens networks. initial: networks to load at start; the first is the default. max_request: most
    positions in one request. limits: of the queues. on_ready: called from a thread once the initial networks
    are loaded, with their descriptions; on_failed with the exception when one could not be.

    `bind` addresses, then `run` until `stop` (from any thread), or until a client drains it.
    """

    def __init__(
        self,
        loader: Loader,
        initial: Sequence[NetworkToLoad],
        *,
        max_request: int = 4096,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 - it cannot be changed
        remote_admin: bool = False,
        on_ready: Callable[[tuple[NetworkInfo, ...]], None] | None = None,
        on_failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.metrics = Metrics()
        self._initial = initial
        self._max_request = max_request
        self._remote_admin = remote_admin
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._dispatcher = Dispatcher(self._post, self.metrics, limits)
        self._sockets = ServiceSockets(max_message_bytes(max_request) + 65536)
        self._sessions = Sessions()
        self._networks = ServedNetworks(loader, self._dispatcher, self._call)
        self._waiting_hellos: list[tuple[bytes, int]] = []
        self._drain_waiters: list[tuple[bytes, int]] = []
        self._draining = False
        self._ready = False
        self._stopping = False
        # Filled by other threads, emptied by the I/O thread: answers, and things to do there.
        self._outbox: deque[tuple[bytes, int, list[Frame], str]] = deque()
        self._tasks: deque[Callable[[], None]] = deque()

    # -- for the owner ---------------------------------------------------------------------------------

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it. Raises AddressError."""
        return self._sockets.bind(address)

    def run(self) -> None:
        """Serve until stopped or drained. Frees everything before it returns."""
        self._networks.load_initial(self._initial, self._become_ready, self._fail_to_start)
        try:
            while not self._stopping:
                deadline = self._dispatcher.next_deadline_ms()
                self._sockets.wait(self._poll_timeout(deadline))
                while self._tasks:
                    self._tasks.popleft()()
                self._send_outbox()
                self._receive()
                self._dispatcher.announce()
                if deadline is not None and deadline <= now_ms():
                    self._expire()
                for client in self._sessions.idle():
                    self._forget(client)
                if self._draining and not self._stopping:
                    self._finish_drain()
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return soon. May be called from any thread or a signal handler, any number of times."""
        self._stopping = True
        self._sockets.wakeup.wake_from_signal_handler()

    def close(self) -> None:
        """Free everything; `run` does so itself when it ends. Idempotent."""
        if self._sockets.closed:
            return
        self._sockets.unbind()
        self._stopping = True
        self._dispatcher.stop()
        self._sockets.close()

    def drain(self) -> None:
        """Take nothing new, finish what is queued, then make `run` return. Any thread may call this."""
        self._call(self._start_drain)

    def state(self) -> State:
        """The state of the service at the moment. Any thread may ask for it."""
        return State(
            ready=self._ready,
            clients=len(self._sessions),
            queued_positions=self._dispatcher.queued_positions(),
            device_memory=self._dispatcher.device_memory(),
        )

    # -- the I/O thread --------------------------------------------------------------------------------

    def _poll_timeout(self, deadline: float | None) -> int:
        if self._outbox or self._tasks:
            return 0
        if deadline is None:
            return 1000
        return max(0, min(1000, int(deadline - now_ms()) + 1))

    def _receive(self) -> None:
        for _ in range(MESSAGES_PER_ROUND):
            parts = self._sockets.receive()
            if parts is None:
                return
            client = parts[0].bytes
            try:
                self._handle(client, parts[1:])
                continue
            except RemoteError as refused:
                error = refused
                if isinstance(refused, BadRequest):
                    self.metrics.bad_messages.add()
            except Exception:  # a fault of ours with one message must not end the service for everybody
                log.exception("a message could not be handled")
                error = BadRequest("the evaluator could not handle this message; its log says more")
            self._send_error(client, peek_id(parts[1:]), error)
        # More may be waiting: look again without polling.
        self._sockets.wakeup.wake()

    def _handle(self, client: bytes, parts: list[zmq.Frame]) -> None:
        message = decode_request(parts, self._max_request, _check)
        session = self._sessions.seen(client)
        if isinstance(message, _ADMINISTRATION) and not (self._remote_admin or is_local(parts[0])):
            raise BadRequest("load, unload and drain are allowed from this machine only (see remote_admin)")
        _HANDLERS[type(message)](self, session, message)

    # -- one method for each kind of message -----------------------------------------------------------

    def _evaluate(self, session: Session, message: messages.Evaluate) -> None:
        if self._draining:
            raise Draining("this evaluator is shutting down; connect to another one")
        if message.id in session.requests:
            raise BadRequest(f"id {message.id} is in flight already")
        network = self._networks.find(message.network)
        now = now_ms()
        deadline = None if message.deadline_ms is None else now + message.deadline_ms
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed on arrival")
        rank = PRIORITIES.index(message.priority)
        request = Request(session.client, message.id, message.batch, rank, now, deadline)
        self._dispatcher.submit(network, request)
        session.requests[message.id] = (request, network)

    def _cancel(self, session: Session, message: messages.Cancel) -> None:
        entry = session.requests.get(message.id)
        if entry is not None and self._dispatcher.cancel(entry[1], entry[0]):
            del session.requests[message.id]
            self.metrics.cancelled.add()
            self._send(session.client, messages.Cancelled(message.id))

    def _hello(self, session: Session, message: messages.Hello) -> None:
        if not set(message.versions) & set(SUPPORTED_VERSIONS):
            ours = ", ".join(map(str, SUPPORTED_VERSIONS))
            raise UnsupportedVersion(
                f"client speaks versions {list(message.versions)}, this evaluator {ours}: update one"
            )
        session.name = message.client
        if self._ready:
            self._send(session.client, self._welcome(message.id))
        else:
            self._waiting_hellos.append((session.client, message.id))

    def _welcome(self, identity: int) -> messages.Welcome:
        infos = self._networks.infos()
        return messages.Welcome(identity, SUPPORTED_VERSIONS[-1], SERVER, self._max_request, infos)

    def _ping(self, session: Session, message: messages.Ping) -> None:
        self._send(session.client, messages.Pong(message.id))

    def _status(self, session: Session, message: messages.Status) -> None:
        metrics, infos = self.metrics.status(self.state()), self._networks.infos()
        reply = messages.StatusReply(message.id, True, self._ready, self._draining, infos, metrics)
        self._send(session.client, reply)

    def _load(self, session: Session, message: messages.Load) -> None:
        if self._draining:
            raise Draining("this evaluator is shutting down")

        def fail(error: Exception) -> None:
            self._send_error(session.client, message.id, LoadFailed(f"{message.path}: {error}"))

        self._networks.load(
            NetworkToLoad(message.path, message.policy_head, message.value_head),
            lambda info: self._send(session.client, messages.Loaded(message.id, info)),
            fail,
        )

    def _unload(self, session: Session, message: messages.Unload) -> None:
        self._networks.unload(
            message.network, lambda: self._send(session.client, messages.Unloaded(message.id))
        )

    def _drain(self, session: Session, message: messages.Drain) -> None:
        self._drain_waiters.append((session.client, message.id))
        self._start_drain()

    # -- what is done without being asked --------------------------------------------------------------

    def _expire(self) -> None:
        for request in self._dispatcher.expire():
            assert isinstance(request.client, bytes)
            self._sessions.finish(request.client, request.id)
            error = DeadlineExceeded("still queued when its deadline passed")
            self._send_error(request.client, request.id, error)

    def _start_drain(self) -> None:
        if not self._draining:
            log.info("draining")
        self._draining = True

    def _finish_drain(self) -> None:
        if self._sessions.busy or self._outbox:
            return
        for client, identity in self._drain_waiters:
            self._send(client, messages.Drained(identity))
        self._stopping = True

    def _forget(self, client: bytes) -> None:
        self._sessions.forget(client)
        self._dispatcher.remove_client(client)

    def _send_error(self, client: bytes, identity: int, error: RemoteError) -> None:
        self.metrics.error(error.code)
        self._send(client, messages.Error(identity, error.code, error.message))

    def _send(self, client: bytes, message: messages.Reply) -> None:
        self._send_frames(client, encode(message))

    def _send_frames(self, client: bytes, frames: Sequence[Any]) -> None:
        delivery = self._sockets.send(client, frames)
        if delivery is not Delivery.SENT:
            self.metrics.dropped_replies.add()
        if delivery is Delivery.GONE:
            self._forget(client)

    def _send_outbox(self) -> None:
        while self._outbox:
            self._answer(*self._outbox.popleft())

    def _answer(self, client: bytes, identity: int, frames: list[Frame], code: str) -> None:
        """Send the end of a request, unless nobody waits for it any more. code: of an error."""
        if self._sessions.finish(client, identity):
            if code:
                self.metrics.error(code)
            self._send_frames(client, frames)

    # -- other threads ---------------------------------------------------------------------------------

    def _post(self, finished: Sequence[tuple[Request, RemoteError | None]]) -> None:
        """Take finished requests from a worker thread: encode their answers, and send them if the I/O thread
        sleeps; else that one does."""
        answers: list[tuple[bytes, int, list[Frame], str]] = []
        for request, error in finished:
            assert isinstance(request.client, bytes)
            if error is not None:
                frames = encode(messages.Error(request.id, error.code, error.message))
                answers.append((request.client, request.id, frames, error.code))
                continue
            assert request.parts is not None
            queue_ms = request.launched_ms - request.arrived_ms
            frames = encode_result(
                request.id, request.parts, queue_ms, request.compute_ms, request.largest_batch
            )
            self.metrics.answered(request.rank, request.count, queue_ms / 1000)
            answers.append((request.client, request.id, frames, ""))
        if not self._sockets.borrow():
            self._outbox += answers
            self._sockets.wakeup.wake()
            return
        try:
            for answer in answers:
                self._answer(*answer)
        finally:
            self._sockets.give_back()
        if self._draining:  # It may have been the last one.
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
        self._ready = True
        for client, identity in self._waiting_hellos:
            self._send(client, self._welcome(identity))
        self._waiting_hellos.clear()
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
    messages.Load: EvaluatorService._load,
    messages.Unload: EvaluatorService._unload,
    messages.Drain: EvaluatorService._drain,
}

assert set(_HANDLERS) == set(get_args(messages.Request)), "every request has a handler"

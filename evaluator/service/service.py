"""The service: sessions and messages. One I/O thread owns the sockets; devices compute on threads of theirs.

The I/O thread decodes requests and queues them with the dispatcher; worker threads hand finished requests to
`_post`, which encodes the answers there and wakes the I/O thread to send them. Loading and unloading run on
threads of their own (evaluator/service/networks.py), so that clients of other networks notice nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq

from evaluator.metrics import Metrics
from evaluator.scheduling.dispatcher import Dispatcher
from evaluator.scheduling.loading import Loader
from evaluator.scheduling.runners import ServedNetwork, now_ms
from evaluator.scheduling.scheduler import Request
from evaluator.service.networks import NetworkToLoad, ServedNetworks
from evaluator.service.sockets import Delivery, ServiceSockets
from protocol.codec import Frame, decode_request, encode, max_message_bytes, peek_id
from protocol.errors import (
    BadRequest,
    Cancelled,
    DeadlineExceeded,
    LoadFailed,
    RemoteError,
    UnsupportedVersion,
)
from protocol.errors import Draining as DrainingError
from protocol.host.version import __version__
from protocol.messages import (
    PRIORITIES,
    SUPPORTED_VERSIONS,
    Cancel,
    Drain,
    Drained,
    Error,
    Evaluate,
    Hello,
    Load,
    Loaded,
    NetworkInfo,
    Ping,
    Pong,
    Reply,
    Result,
    Status,
    StatusReply,
    Unload,
    Unloaded,
    Welcome,
)
from protocol.messages import Cancelled as CancelledMessage

log = logging.getLogger("evaluator.service")

SERVER = f"wavefront-evaluator {__version__}"

IDLE_CLIENT_S = 600.0
"""A client without requests in flight is forgotten after this long; it may come back at any time."""

MESSAGES_PER_ROUND = 64
"""Messages taken in before answers are sent, so that a flood of requests does not hold answers up."""

RANKS = {name: rank for rank, name in enumerate(PRIORITIES)}


@dataclass(slots=True)
class _Session:
    """What is remembered of a client. requests: in flight, with the network that has them."""

    last_seen: float
    name: str = ""
    requests: dict[int, tuple[Request, ServedNetwork]] = field(default_factory=dict)


class EvaluatorService:
    """An evaluator on its sockets.

    loader: opens networks. initial: networks to load at start; the first is the default. max_request: most
    positions in one request. on_ready: called from a thread once the initial networks are loaded, with their
    descriptions; on_failed with the exception when one could not be.

    `bind` addresses, then `run` until `stop` (from any thread), or until a client drains it.
    """

    def __init__(
        self,
        loader: Loader,
        initial: Sequence[NetworkToLoad],
        *,
        max_request: int = 4096,
        max_queue: int = 65536,
        max_client_queue: int = 32768,
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
        self._dispatcher = Dispatcher(
            self._post, self.metrics, max_queue=max_queue, max_client_queue=max_client_queue
        )
        self._sockets = ServiceSockets(max_message_bytes(max_request) + 65536)
        self._sessions: dict[bytes, _Session] = {}
        self._networks = ServedNetworks(loader, self._dispatcher, self._call)
        self._waiting_hellos: list[tuple[bytes, int]] = []
        self._drain_waiters: list[tuple[bytes, int]] = []
        self._draining = False
        self._ready = False
        self._stopping = False
        # Filled by other threads, emptied by the I/O thread: answers, and things to do there.
        self._outbox: deque[tuple[bytes, int, list[Frame], str]] = deque()
        self._tasks: deque[Callable[[], None]] = deque()
        self._next_sweep = time.monotonic() + IDLE_CLIENT_S / 4

    # -- for the owner ---------------------------------------------------------------------------------

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it. Raises AddressError."""
        return self._sockets.bind(address)

    def run(self) -> None:
        """Serve until stopped or drained. Frees everything before it returns."""
        self._networks.load_initial(self._initial, self._become_ready, self._fail_to_start)
        try:
            while not self._stopping:
                self._sockets.wait(self._poll_timeout())
                self._run_tasks()
                self._send_outbox()
                self._receive()
                self._dispatcher.announce()
                self._expire()
                self._housekeeping()
                if self._draining and not self._stopping:
                    self._finish_drain()
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return soon. Any thread, any number of times, also from a signal handler."""
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
        """Take nothing new, finish what is queued, then make `run` return. Any thread."""
        self._call(self._start_drain)

    def status(self) -> dict[str, Any]:
        """The metrics snapshot with the state of the moment. Any thread."""
        return {
            **self.metrics.snapshot(),
            "ready": self._ready,
            "clients": len(self._sessions),
            "queued_positions": self._dispatcher.queued_positions(),
            "device_memory": self._dispatcher.device_memory(),
        }

    # -- the I/O thread --------------------------------------------------------------------------------

    def _poll_timeout(self) -> int:
        if self._outbox or self._tasks:
            return 0
        deadline = self._dispatcher.next_deadline_ms()
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
            except RemoteError as error:
                if isinstance(error, BadRequest):
                    self.metrics.count("bad_messages")
                self._send_error(client, peek_id([part.buffer for part in parts[1:]]), error)
            except Exception:  # a fault of ours with one message must not end the service for everybody
                log.exception("a message could not be handled")
                failure = BadRequest("the evaluator could not handle this message; its log says more")
                self._send_error(client, peek_id([part.buffer for part in parts[1:]]), failure)
        # More may be waiting: look again without polling.
        self._sockets.wakeup.wake()

    def _handle(self, client: bytes, parts: list[zmq.Frame]) -> None:
        message = decode_request([part.buffer for part in parts], self._max_request)
        session = self._sessions.get(client)
        if session is None:
            session = self._sessions[client] = _Session(0.0)
        session.last_seen = time.monotonic()
        match message:
            case Evaluate():
                self._evaluate(client, session, message)
            case Cancel():
                self._cancel(client, session, message.id)
            case Hello():
                self._hello(client, session, message)
            case Ping():
                self._send(client, Pong(message.id))
            case Status():
                self._send(client, self._status_reply(message.id))
            case Load() | Unload() | Drain():
                self._administer(client, message, parts[0])

    def _evaluate(self, client: bytes, session: _Session, message: Evaluate) -> None:
        if self._draining:
            raise DrainingError("this evaluator is shutting down; connect to another one")
        if message.id in session.requests:
            raise BadRequest(f"id {message.id} is in flight already")
        network = self._networks.find(message.network)
        now = now_ms()
        deadline = None if message.deadline_ms is None else now + message.deadline_ms
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed on arrival")
        request = Request(client, message.id, message.batch, RANKS[message.priority], now, deadline)
        self._dispatcher.submit(network, request)
        session.requests[message.id] = (request, network)

    def _cancel(self, client: bytes, session: _Session, identity: int) -> None:
        entry = session.requests.get(identity)
        if entry is not None and self._dispatcher.cancel(entry[1], entry[0]):
            del session.requests[identity]
            self.metrics.count("cancelled")
            self._send(client, CancelledMessage(identity))

    def _hello(self, client: bytes, session: _Session, message: Hello) -> None:
        common = set(message.versions) & set(SUPPORTED_VERSIONS)
        if not common:
            ours = ", ".join(map(str, SUPPORTED_VERSIONS))
            raise UnsupportedVersion(
                f"client speaks versions {list(message.versions)}, this evaluator {ours}: update one"
            )
        session.name = message.client
        if self._ready:
            self._send(client, self._welcome(message.id))
        else:
            self._waiting_hellos.append((client, message.id))

    def _administer(self, client: bytes, message: Load | Unload | Drain, frame: zmq.Frame) -> None:
        if not self._remote_admin and not _is_local(frame):
            raise BadRequest("load, unload and drain are allowed from this machine only (see remote_admin)")
        if isinstance(message, Drain):
            self._drain_waiters.append((client, message.id))
            self._start_drain()
        elif isinstance(message, Load):
            if self._draining:
                raise DrainingError("this evaluator is shutting down")
            self._load(client, message)
        else:
            identity = message.id
            self._networks.unload(message.network, lambda: self._send(client, Unloaded(identity)))

    def _load(self, client: bytes, message: Load) -> None:
        def fail(error: Exception) -> None:
            self._send_error(client, message.id, LoadFailed(f"{message.path}: {error}"))

        self._networks.load(
            NetworkToLoad(message.path, message.policy_head, message.value_head),
            lambda info: self._send(client, Loaded(message.id, info)),
            fail,
        )

    def _welcome(self, identity: int) -> Welcome:
        infos = self._networks.infos()
        return Welcome(identity, SUPPORTED_VERSIONS[-1], SERVER, self._max_request, infos)

    def _status_reply(self, identity: int) -> StatusReply:
        return StatusReply(identity, True, self._ready, self._draining, self._networks.infos(), self.status())

    def _expire(self) -> None:
        for request in self._dispatcher.expire():
            self._finish(request, DeadlineExceeded("still queued when its deadline passed"))

    def _finish(self, request: Request, error: RemoteError) -> None:
        client = request.client
        assert isinstance(client, bytes)
        session = self._sessions.get(client)
        if session is not None:
            session.requests.pop(request.id, None)
        self._send_error(client, request.id, error)

    def _start_drain(self) -> None:
        if not self._draining:
            log.info("draining")
        self._draining = True

    def _finish_drain(self) -> None:
        if any(session.requests for session in self._sessions.values()) or self._outbox:
            return
        for client, identity in self._drain_waiters:
            self._send(client, Drained(identity))
        self._stopping = True

    def _housekeeping(self) -> None:
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + IDLE_CLIENT_S / 4
        for client, session in list(self._sessions.items()):
            if not session.requests and now - session.last_seen > IDLE_CLIENT_S:
                self._forget(client)

    def _forget(self, client: bytes) -> None:
        self._sessions.pop(client, None)
        self._dispatcher.remove_client(client)

    def _send_error(self, client: bytes, identity: int, error: RemoteError) -> None:
        self.metrics.error(error.code)
        if isinstance(error, Cancelled):
            self._send(client, CancelledMessage(identity))
        else:
            self._send(client, Error(identity, error.code, error.message))

    def _send(self, client: bytes, message: Reply) -> None:
        self._send_frames(client, encode(message))

    def _send_frames(self, client: bytes, frames: Sequence[Any]) -> None:
        delivery = self._sockets.send(client, frames)
        if delivery is not Delivery.SENT:
            self.metrics.count("dropped_replies")
        if delivery is Delivery.GONE:
            self._forget(client)

    def _send_outbox(self) -> None:
        while self._outbox:
            client, identity, frames, code = self._outbox.popleft()
            session = self._sessions.get(client)
            if session is not None and session.requests.pop(identity, None) is not None:
                if code:
                    self.metrics.error(code)
                self._send_frames(client, frames)

    def _run_tasks(self) -> None:
        while self._tasks:
            self._tasks.popleft()()

    # -- other threads ---------------------------------------------------------------------------------

    def _post(self, finished: Sequence[tuple[Request, RemoteError | None]]) -> None:
        """Take finished requests from a worker thread: encode their answers and have them sent."""
        for request, error in finished:
            assert isinstance(request.client, bytes)
            if error is not None:
                frames = encode(Error(request.id, error.code, error.message))
                self._outbox.append((request.client, request.id, frames, error.code))
                continue
            assert request.parts is not None
            queue_ms = request.launched_ms - request.arrived_ms
            result = Result(request.id, request.parts, queue_ms, request.compute_ms, request.largest_batch)
            self._outbox.append((request.client, request.id, encode(result), ""))
            self.metrics.answered(request.rank, request.count, queue_ms)
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


def _is_local(frame: zmq.Frame) -> bool:
    """Whether a message came from this machine: tcp peers are named by number, ipc ones as localhost:UID:…"""
    try:
        peer = frame.get("Peer-Address")
    except zmq.ZMQError:
        return True  # ipc where ZeroMQ knows no peer credentials
    return peer in ("", "::1") or str(peer).startswith(("127.", "::ffff:127.", "localhost:"))

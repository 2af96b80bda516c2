# SPDX-License-Identifier: GPL-3.0-or-later
"""The ZeroMQ sockets of the service: one ROUTER for clients with keys, on systems without the hub for all.

A key is trust: nothing limits the bytes of a client that has one. An unauthenticated client has
HANDSHAKE_MS for the handshake and may send no more than that.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import zmq
from zmq.utils.monitor import parse_monitor_message

from evaluator.service.connections.access import Access
from evaluator.service.connections.authentication import Authentication, user_of
from evaluator.service.connections.endpoints import BACKLOG, AddressError, bind, remove_socket
from evaluator.service.connections.limits import ClosedLog, ConnectionLimits
from evaluator.service.connections.transport import Arrived, Client, Delivery, Origin
from protocol._core import SilentConnections
from protocol.common.keys.notation import KeysError, show_key
from protocol.common.wakeup import Wakeup
from protocol.connections import multipart
from protocol.connections.multipart import READABLE
from protocol.wire.codec import max_message_bytes

if sys.platform == "linux":
    from protocol._core import sending_too_much, source_of_peer

T = TypeVar("T")

HEARTBEAT_MS = 1000
"""Interval of heartbeats on idle connections, so that vanished machines are detected."""

HANDSHAKE_MS = 2000
"""Time within which a connection must complete ZeroMQ's handshake."""

LOOK_MS = 50.0
"""Interval of checks of unauthenticated clients' bytes: ZeroMQ's own limit is that of all frames."""

LINGER_MS = 1000
"""Time limit for sending the last answers when the service ends."""

SEND_LIMIT = 1024
"""Answers that may wait for one client that does not read; more are discarded."""


class ZeroMqSockets:
    """`Sockets` of transport.py, which documents the methods.

    ZeroMQ allows several threads to use a socket, one at a time. The owner therefore sleeps on file
    descriptors, never inside ZeroMQ.
    """

    def __init__(
        self,
        max_request: int,
        limits: ConnectionLimits,
        access: Access,
        on_refused: Callable[[], None],
        wakeup: Wakeup | None = None,
    ) -> None:
        """max_request: positions. access: permissions. on_refused: called for each refused client. wakeup: of
        the owner of these sockets, which then waits for `descriptors` itself."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = LINGER_MS
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, max_message_bytes(max_request) + 65536)
        self._router.setsockopt(zmq.SNDHWM, SEND_LIMIT)
        # With a limit, libzmq 4.3.5 aborts (assertion !_io_error): when a connection breaks while its
        # messages wait for room and a heartbeat is due.
        self._router.setsockopt(zmq.RCVHWM, 0)
        self._router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._router.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5 * HEARTBEAT_MS)
        self._router.setsockopt(zmq.BACKLOG, BACKLOG)
        self._access = access
        self._authentication = Authentication(self._context, access, on_refused)
        self._max_connections = limits.connections
        self._most_open = limits.connections + limits.unauthenticated
        self._open: dict[int, bool] = {}
        """Connections, by descriptor; True if a client was admitted."""
        self._silent = SilentConnections(limits.most_silent)
        self._since: dict[int, float] = {}
        """Start of each connection without a message, in seconds of the monotonic clock."""
        self._look_at_ms = 0.0
        self._closed: Counter[str] = Counter()
        self._endings: list[tuple[str, str]] = []
        self._log = ClosedLog()
        self._router.monitor("inproc://connections", zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED)
        self._monitor = self._context.socket(zmq.PAIR)
        self._monitor.rcvhwm = 0  # with a limit, ZeroMQ's own thread would wait for us
        self._monitor.connect("inproc://connections")
        self._addresses: list[str] = []
        self._owns_wakeup = wakeup is None
        self.wakeup = wakeup or Wakeup()
        self.descriptors = (
            int(self._router.getsockopt(zmq.FD)),
            int(self._monitor.getsockopt(zmq.FD)),
            self._authentication.fileno(),
        )
        """Readable if `look` or `attend` has something to do."""
        self._woken = (self.wakeup.fileno(), READABLE)
        self._watched: list[tuple[Any, int]] = [*((each, READABLE) for each in self.descriptors), self._woken]
        self.has_message = False
        self._in_use = threading.Lock()
        """Held by the owner except while it sleeps, and by a thread that has borrowed the sockets."""
        self._in_use.acquire()

    def bind(self, address: str) -> str:
        try:
            key = self._authentication.secure(self._router, address)
        except KeysError as error:
            raise AddressError(f"{address}: {error}") from None
        bound = bind(self._router, address)
        self._addresses.append(bound)
        self._access.bound(bound)
        return bound if key is None else f"{bound}#{show_key(key)}"

    def timeout(self, timeout_ms: int) -> int:
        """Return how long a wait may take: less while the bytes of unauthenticated clients need checks."""
        return min(timeout_ms, int(LOOK_MS)) if self._since else timeout_ms

    def look(self) -> bool:
        """Check for messages, and return True if there is one."""
        self.has_message = multipart.has_message(self._router)
        return self.has_message

    def has_events(self) -> bool:
        """Return True if connections may have ended or need `attend`."""
        waiting = self._since or self._log.waiting
        return bool(waiting) or multipart.has_message(self._monitor) or self._authentication.is_asked()

    def wait(self, timeout_ms: int) -> bool:
        # The descriptor signals changes only, so ask the socket for messages that wait already.
        if self.wakeup.falls_asleep() and timeout_ms and not self.look():
            self._in_use.release()
            try:
                ready = multipart.wait(self._watched, self.timeout(timeout_ms))
            finally:
                self._in_use.acquire()
            self.wakeup.awake()
            if self._woken in ready:
                self.wakeup.clear()
        else:
            self.wakeup.awake()
        self.look()
        return self.has_events()

    def attend(self) -> None:
        if self._authentication.answer():
            self.wakeup.wake()
        now = time.perf_counter()
        if self._since and 1000 * now >= self._look_at_ms:
            self._look_at_ms = 1000 * now + LOOK_MS
            for descriptor in sending_too_much(list(self._since)) if sys.platform == "linux" else ():
                self._end(descriptor, "frame")
        self._log.log(self._endings, self._closed)
        self._endings.clear()

    def borrow(self) -> bool:
        return self._in_use.acquire(blocking=False)

    def give_back(self) -> None:
        # Using a socket consumes its descriptor's signal, which would have woken the owner.
        has_message = multipart.has_message(self._router)
        self._in_use.release()
        if has_message:
            self.wakeup.wake()

    def connections(self) -> Iterator[int]:
        while multipart.has_message(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            descriptor = int(event["value"])
            if event["event"] == zmq.Event.ACCEPTED:
                self._accept(descriptor)
            elif descriptor in self._open:
                open_s = time.perf_counter() - self._since.get(descriptor, time.perf_counter())
                if 1000 * open_s >= HANDSHAKE_MS / 2:  # Half: a busy thread begins to count after libzmq.
                    self._closed["late"] += 1
                del self._open[descriptor]
                self._speaks(descriptor)
                yield descriptor

    def _accept(self, descriptor: int) -> None:
        """Add a connection. It may displace the oldest silent one of its address; with too many connections,
        of the address with the most."""
        source = source_of_peer(descriptor) if sys.platform == "linux" else b""
        displaced = self._silent.displaced_by(source) if source else None
        if displaced is None and len(self._open) >= self._most_open:
            displaced = self._silent.victim()
        if displaced is not None:
            self._end(displaced, "silent")
        self._open[descriptor] = False
        self._silent.add(descriptor, source)
        self._since[descriptor] = time.perf_counter()

    def _end(self, descriptor: int, reason: str) -> None:
        self._speaks(descriptor)
        self._closed[reason] += 1
        if len(self._endings) < MOST_ENDINGS:
            self._endings.append((_address_of(descriptor), reason))
        _hang_up(descriptor)

    def _speaks(self, descriptor: int) -> None:
        """Note that a connection has sent a message or ended."""
        self._silent.remove(descriptor)
        self._since.pop(descriptor, None)

    def hang_up(self, descriptor: int) -> None:
        if descriptor in self._open:
            _hang_up(descriptor)

    def origin(self, arrived: Arrived) -> Origin:
        frame: zmq.Frame = arrived.source
        try:
            descriptor, address = int(frame.get(zmq.SRCFD)), str(frame.get("Peer-Address"))
        except (zmq.ZMQError, ValueError):
            descriptor, address = -1, ""  # an ipc address on a system without peer credentials
        return Origin(descriptor if descriptor in self._open else -1, address)

    def admit(self, arrived: Arrived) -> bool:
        descriptor = self.origin(arrived).descriptor
        if descriptor < 0 or self._open[descriptor]:
            return True
        if sum(self._open.values()) >= self._max_connections:
            self._closed["connections"] += 1
            return False
        self._open[descriptor] = True
        self._speaks(descriptor)
        return True

    def unread(self, client: Client) -> int:
        """ZeroMQ does not tell."""
        return 0

    def keeps_too_much(self, client: Client, held: int) -> bool:
        """A key is trust."""
        return False

    def user(self, arrived: Arrived) -> str:
        return user_of(arrived.source)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def buffered_bytes(self) -> int:
        """ZeroMQ does not tell."""
        return 0

    @property
    def closed_connections(self) -> Mapping[str, int]:
        return dict(self._closed)

    def receive(self) -> Arrived | None:
        if not self.has_message:
            return None
        frames = multipart.receive(self._router)
        self.has_message = multipart.has_message(self._router)
        return Arrived(frames[0].bytes, frames[1:], frames[0])

    def send(self, client: Client, frames: Sequence[Any]) -> Delivery:
        try:
            multipart.send(self._router, [client, *frames])
        except zmq.Again:
            return Delivery.DROPPED
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return Delivery.GONE
        return Delivery.SENT

    @property
    def closed(self) -> bool:
        return bool(self._router.closed)

    def close(self) -> None:
        """Waits at most LINGER_MS."""
        # Close it before the address is free for the next evaluator. Unbinding would disconnect the clients
        # and lose the last answers.
        for address in self._addresses:
            remove_socket(address)
        self._addresses.clear()
        self._router.disable_monitor()
        self._monitor.close(linger=0)
        self._authentication.close()
        self._router.close()
        self._context.term()
        if self._owns_wakeup:
            self.wakeup.close()


MOST_ENDINGS = 16
"""Closed connections that are remembered for the log."""


def _hang_up(descriptor: int) -> None:
    """Shut a connection down. ZeroMQ owns the descriptor and closes it at end of file."""
    _query_socket(descriptor, lambda connection: connection.shutdown(socket.SHUT_RDWR), None)


def _address_of(descriptor: int) -> str:
    return _query_socket(descriptor, lambda connection: str(connection.getpeername()[0]), "")


def _query_socket(descriptor: int, ask: Callable[[socket.socket], T], otherwise: T) -> T:
    """Return what a connection of ZeroMQ answers; `otherwise` if it has ended."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=descriptor)  # not a copy: descriptors may be exhausted
        try:
            return ask(connection)
        finally:
            connection.detach()
    return otherwise

# SPDX-License-Identifier: GPL-3.0-or-later
"""The service's sockets: one ROUTER for all clients, behind the gate where there is one, and what other
threads wake their owner by."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from evaluator.service.connections import gate
from evaluator.service.connections.access import Access
from evaluator.service.connections.authentication import Authentication, user_of
from evaluator.service.connections.endpoints import BACKLOG, AddressError, bind, remove_socket
from evaluator.service.connections.gate import MOST_FRAMES, ConnectionLimits, Gatekeeper
from evaluator.service.connections.transport import GONE, Arrived, Delivery, Origin
from protocol.codec import max_message_bytes
from protocol.connections import multipart
from protocol.connections.multipart import READABLE
from protocol.host.wakeup import Wakeup
from protocol.keys.notation import KeysError, show_key

HEARTBEAT_MS = 1000
"""How often idle connections are checked by the transport, so that vanished machines are forgotten."""

HANDSHAKE_MS = 10_000
"""A connection that has not said by then that it speaks ZeroMQ is closed."""

LINGER_MS = 1000
"""How long the last answers may take to leave when the service ends."""

SEND_LIMIT = 1024
"""Answers waiting for one client that does not read; more are dropped."""


class ZeroMqSockets:
    """See `evaluator.service.connections.transport.Sockets`.

    ZeroMQ lets another thread use a socket that one thread at a time uses. The owner therefore sleeps on file
    descriptors only, and not inside of ZeroMQ.
    """

    def __init__(
        self,
        max_request: int,
        limits: ConnectionLimits,
        access: Access,
        on_refused: Callable[[], None],
        *,
        gated: bool,
    ) -> None:
        """max_request: positions. limits: those in bytes are kept by the gate. access: who is let in;
        on_refused is called for each who is not. gated: whether there is a gate between the clients and the
        ROUTER, where the system has it."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = LINGER_MS
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, max_message_bytes(max_request) + 65536)
        self._router.setsockopt(zmq.SNDHWM, SEND_LIMIT)
        # With a limit, libzmq 4.3.5 ends the process: when a connection breaks whose messages wait because of
        # it, and its next heartbeat is due (assertion !_io_error). The gate bounds what waits in bytes.
        self._router.setsockopt(zmq.RCVHWM, 0)
        self._router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._router.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5 * HEARTBEAT_MS)
        self._router.setsockopt(zmq.BACKLOG, BACKLOG)
        self._access = access
        self._authentication = Authentication(self._context, access, on_refused)
        self._gate = Gatekeeper(limits, max_request) if gated and gate.AVAILABLE else None
        self._max_connections = limits.connections
        self._open: set[int] = set()
        self._silent: dict[int, None] = {}
        """Those that have sent no message, oldest first. Only where there is no gate."""
        self._router.monitor("inproc://connections", zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED)
        self._monitor = self._context.socket(zmq.PAIR)
        self._monitor.rcvhwm = 0  # ZeroMQ's own thread would wait for us.
        self._monitor.connect("inproc://connections")
        self._addresses: list[str] = []
        self.wakeup = Wakeup()
        self._watched: list[tuple[Any, int]] = [
            (int(self._router.getsockopt(zmq.FD)), READABLE),
            (self.wakeup.fileno(), READABLE),
            (int(self._monitor.getsockopt(zmq.FD)), READABLE),
            (self._authentication.fileno(), READABLE),
        ]
        self._has_message = False
        self._may_be_asked = False
        self._in_use = threading.Lock()
        """Held by the owner but while it sleeps, and by who has borrowed the sockets."""
        self._in_use.acquire()

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it, with the key if that is demanded there.
        Raises AddressError."""
        try:
            key = self._authentication.secure(self._router, address)
        except KeysError as error:
            raise AddressError(f"{address}: {error}") from None
        if self._gate is None:
            bound = bind(self._router, address)
        else:
            bound = self._gate.bind(self._router, address, self._access.door(address))
        self._addresses.append(bound)
        self._access.bound(bound)
        return bound if key is None else f"{bound}#{show_key(key)}"

    def authenticate(self) -> None:
        """Say who of those that are connecting may; of many, the others in the rounds to come."""
        if self._may_be_asked and self._authentication.answer():
            self.wakeup.wake()

    def wait(self, timeout_ms: int) -> None:
        """Wait for a message or to be woken."""
        # The descriptor tells of news only: of what there is already, the socket must be asked.
        if self.wakeup.falls_asleep() and timeout_ms and not multipart.has_message(self._router):
            self._in_use.release()
            try:
                ready = multipart.wait(self._watched, timeout_ms)
            finally:
                self._in_use.acquire()
            self.wakeup.awake()
            found = [each for each, _ in ready]
            self._may_be_asked = self._authentication.fileno() in found
            if self.wakeup.fileno() in found:
                self.wakeup.clear()
        else:
            self.wakeup.awake()
            self._may_be_asked = True
        self._has_message = multipart.has_message(self._router)

    def borrow(self) -> bool:
        """Take the sockets from their owner while it sleeps; False if it does not. Any thread; does not
        wait."""
        return self._in_use.acquire(blocking=False)

    def give_back(self) -> None:
        """Let the owner have its sockets again."""
        # Code that uses a socket takes the news from its descriptor, by which the owner would have woken.
        news = multipart.has_message(self._router)
        self._in_use.release()
        if news:
            self.wakeup.wake()

    def connections(self) -> Iterator[int]:
        """The connections that have ended since the last call, by descriptor. Their numbers may be those of
        new connections by now: code that meets a client for the first time must ask here before."""
        while multipart.has_message(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            descriptor = int(event["value"])
            if event["event"] == zmq.Event.ACCEPTED:
                self._open.add(descriptor)
                if self._gate is None:
                    self._make_room_for(descriptor)
            elif descriptor in self._open:
                self._open.discard(descriptor)
                self._silent.pop(descriptor, None)
                yield descriptor

    def hang_up(self, descriptor: int) -> None:
        """End a connection, by its descriptor, if there is one."""
        if descriptor in self._open:
            _hang_up(descriptor)

    def origin(self, arrived: Arrived) -> Origin:
        """Where a message came from."""
        frame: zmq.Frame = arrived.source
        try:
            descriptor, address = int(frame.get(zmq.SRCFD)), str(frame.get("Peer-Address"))
        except (zmq.ZMQError, ValueError):
            descriptor, address = -1, ""  # ipc where ZeroMQ knows no peer credentials
        if descriptor not in self._open:
            descriptor = -1
        if self._gate is None:
            self._silent.pop(descriptor, None)
            return Origin(descriptor, address)
        link = self._gate.link(frame)
        return Origin(descriptor, GONE if link is None else link.address, link)

    def _make_room_for(self, descriptor: int) -> None:
        """End the connection that has been silent for longest, if one more is too many; else this one."""
        self._silent[descriptor] = None
        if len(self._open) > self._max_connections:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            _hang_up(oldest)

    def user(self, arrived: Arrived) -> str:
        """Who sent a message, as it was admitted."""
        return user_of(arrived.source)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where clients find it, as they must name it."""
        return tuple(self._addresses)

    @property
    def open_connections(self) -> int:
        """Connections at present, of clients and of others that found the address."""
        return len(self._open) if self._gate is None else self._gate.connections

    @property
    def buffered_bytes(self) -> int:
        """What the gate knows of: unfinished requests and unread answers."""
        return 0 if self._gate is None else self._gate.buffered_bytes

    @property
    def closed_connections(self) -> Mapping[str, int]:
        """Connections that the gate has closed or refused, by reason."""
        return {} if self._gate is None else self._gate.closed

    def log_closed(self) -> None:
        """Log the connections that the gate has closed."""
        if self._gate is not None:
            self._gate.log_closed()

    def receive(self) -> Arrived | None:
        """The next message; None if none was there when `wait` returned or the one before was received."""
        if not self._has_message:
            return None
        frames = multipart.receive(self._router)
        self._has_message = multipart.has_message(self._router)
        if self._gate is not None:
            link = self._gate.link(frames[-1])
            if link is not None:
                link.took(frames, 1)
                if len(frames) > MOST_FRAMES + 1:  # encrypted, else the gate had seen it
                    link.cut()
        return Arrived(frames[0].bytes, frames[1:], frames[0])

    def send(self, client: bytes, frames: Sequence[Any]) -> Delivery:
        """Send without waiting: nobody waits for a client that does not read."""
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
        """Whether `close` has been called."""
        return bool(self._router.closed)

    def close(self) -> None:
        """Free the sockets, once what has been sent is on its way or LINGER_MS have passed."""
        # Before the address is free for the next evaluator. Unbinding would cut the connections off, and lose
        # the last answers.
        if self._gate is not None:
            self._gate.stop_listening()
        for address in self._addresses:
            remove_socket(address)
        self._addresses.clear()
        self._router.disable_monitor()
        self._monitor.close(linger=0)
        self._authentication.close()
        self._router.close()
        self._context.term()
        if self._gate is not None:
            self._gate.close(LINGER_MS)
        self.wakeup.close()


def _hang_up(descriptor: int) -> None:
    """Shut a connection down. The descriptor stays ZeroMQ's, which closes it when it finds the end."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=descriptor)  # Without a copy, for which there may be no room.
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()

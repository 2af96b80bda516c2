# SPDX-License-Identifier: GPL-3.0-or-later
"""The ZeroMQ sockets of the service: one ROUTER for all clients, behind the gate if the system has it, and a
wakeup for other threads."""

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
"""Interval of heartbeats on idle connections, so that vanished machines are detected."""

HANDSHAKE_MS = 10_000
"""Time within which a connection must complete ZeroMQ's handshake."""

LINGER_MS = 1000
"""Time limit for sending the last answers when the service ends."""

SEND_LIMIT = 1024
"""Answers that may wait for one client that does not read; more are discarded."""


class ZeroMqSockets:
    """See `evaluator.service.connections.transport.Sockets`.

    ZeroMQ allows several threads to use a socket, one at a time. The owner therefore sleeps on file
    descriptors, never inside ZeroMQ.
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
        """max_request: positions. limits: the gate enforces those in bytes. access: permissions. on_refused:
        called for each refused client. gated: put a gate between the clients and the ROUTER if the system has
        it."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = LINGER_MS
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, max_message_bytes(max_request) + 65536)
        self._router.setsockopt(zmq.SNDHWM, SEND_LIMIT)
        # With a limit, libzmq 4.3.5 aborts (assertion !_io_error): when a connection breaks while its
        # messages wait for room and a heartbeat is due. The gate bounds the waiting bytes.
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
        """Connections without a message, oldest first. Used only without a gate."""
        self._router.monitor("inproc://connections", zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED)
        self._monitor = self._context.socket(zmq.PAIR)
        self._monitor.rcvhwm = 0  # with a limit, ZeroMQ's own thread would wait for us
        self._monitor.connect("inproc://connections")
        self._addresses: list[str] = []
        self.wakeup = Wakeup()
        self._woken = (self.wakeup.fileno(), READABLE)
        self._message_only = [(int(self._router.getsockopt(zmq.FD)), READABLE)]
        self._watched: list[tuple[Any, int]] = [
            *self._message_only,
            self._woken,
            (int(self._monitor.getsockopt(zmq.FD)), READABLE),
            (self._authentication.fileno(), READABLE),
        ]
        self.has_message = False
        self._in_use = threading.Lock()
        """Held by the owner except while it sleeps, and by a thread that has borrowed the sockets."""
        self._in_use.acquire()

    def bind(self, address: str) -> str:
        """See `Sockets`."""
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

    def attend(self) -> None:
        """See `Sockets`."""
        if self._authentication.answer():
            self.wakeup.wake()
        if self._gate is not None:
            self._gate.log_closed()

    def wait(self, timeout_ms: int) -> bool:
        """See `Sockets`."""
        news = True
        # The descriptor signals changes only, so ask the socket for messages that wait already.
        if self.wakeup.falls_asleep() and timeout_ms and not multipart.has_message(self._router):
            self._in_use.release()
            try:
                ready = multipart.wait(self._watched, timeout_ms)
            finally:
                self._in_use.acquire()
            self.wakeup.awake()
            # Without a message, a change of a connection may have woken the gate.
            news = ready != self._message_only
            if self._woken in ready:
                self.wakeup.clear()
        else:
            self.wakeup.awake()
        self.has_message = multipart.has_message(self._router)
        return news

    def borrow(self) -> bool:
        """See `Sockets`."""
        return self._in_use.acquire(blocking=False)

    def give_back(self) -> None:
        """See `Sockets`."""
        # Using a socket consumes its descriptor's signal, which would have woken the owner.
        news = multipart.has_message(self._router)
        self._in_use.release()
        if news:
            self.wakeup.wake()

    def connections(self) -> Iterator[int]:
        """See `Sockets`."""
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
        """See `Sockets`."""
        if descriptor in self._open:
            _hang_up(descriptor)

    def origin(self, arrived: Arrived) -> Origin:
        """See `Sockets`."""
        frame: zmq.Frame = arrived.source
        try:
            descriptor, address = int(frame.get(zmq.SRCFD)), str(frame.get("Peer-Address"))
        except (zmq.ZMQError, ValueError):
            descriptor, address = -1, ""  # an ipc address on a system without peer credentials
        if descriptor not in self._open:
            descriptor = -1
        if self._gate is None:
            self._silent.pop(descriptor, None)
            return Origin(descriptor, address)
        link = self._gate.link(frame)
        return Origin(descriptor, GONE if link is None else link.address, link)

    def _make_room_for(self, descriptor: int) -> None:
        """Add a silent connection. Above the limit, end the oldest silent one, possibly this one."""
        self._silent[descriptor] = None
        if len(self._open) > self._max_connections:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            _hang_up(oldest)

    def user(self, arrived: Arrived) -> str:
        """See `Sockets`."""
        return user_of(arrived.source)

    @property
    def addresses(self) -> tuple[str, ...]:
        """See `Sockets`."""
        return tuple(self._addresses)

    @property
    def open_connections(self) -> int:
        """See `Sockets`."""
        return len(self._open) if self._gate is None else self._gate.connections

    @property
    def buffered_bytes(self) -> int:
        """See `Sockets`. Counted by the gate."""
        return 0 if self._gate is None else self._gate.buffered_bytes

    @property
    def closed_connections(self) -> Mapping[str, int]:
        """See `Sockets`. Counted by the gate."""
        return {} if self._gate is None else self._gate.closed

    def receive(self) -> Arrived | None:
        """See `Sockets`."""
        if not self.has_message:
            return None
        frames = multipart.receive(self._router)
        self.has_message = multipart.has_message(self._router)
        if self._gate is not None:
            link = self._gate.link(frames[-1])
            if link is not None:
                link.took(frames, 1)
                if len(frames) > MOST_FRAMES + 1:  # encrypted; the gate rejects plain ones
                    link.cut()
        return Arrived(frames[0].bytes, frames[1:], frames[0])

    def send(self, client: bytes, frames: Sequence[Any]) -> Delivery:
        """See `Sockets`."""
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
        """See `Sockets`."""
        return bool(self._router.closed)

    def close(self) -> None:
        """See `Sockets`. Waits at most LINGER_MS."""
        # Close it before the address is free for the next evaluator. Unbinding would disconnect the clients
        # and lose the last answers.
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
    """Shut a connection down. ZeroMQ owns the descriptor and closes it at end of file."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=descriptor)  # not a copy: descriptors may be exhausted
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()

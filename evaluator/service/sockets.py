"""The service's sockets: one ROUTER for all clients, and what other threads wake their owner by."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from evaluator.service.endpoints import bind, remove_socket
from protocol import multipart
from protocol.host.wakeup import Wakeup
from protocol.multipart import READABLE

HEARTBEAT_MS = 1000
"""How often idle connections are checked by the transport, so that vanished machines are forgotten."""

HANDSHAKE_MS = 10_000
"""A connection that has not said by then that it speaks ZeroMQ is closed."""

LINGER_MS = 1000
"""How long the last answers may take to leave when the service ends."""

SEND_LIMIT = 1024
"""Answers waiting for one client that does not read; more are dropped."""


class Delivery(Enum):
    """What became of a message. DROPPED: the client does not read its answers. GONE: there is no such
    client any more."""

    SENT = "sent"
    DROPPED = "dropped"
    GONE = "gone"


class ServiceSockets:
    """Belongs to one thread; any other may call what `wakeup` has for others, and use `send` between `borrow`
    and `give_back`.

    A worker thread that has an answer sends it itself while the owner sleeps: to wake the owner for it would
    take both longer than to send it. ZeroMQ allows that for sockets that one thread at a time uses. The owner
    therefore sleeps on file descriptors only, and not inside of ZeroMQ.

    wakeup: ends a `wait`.
    """

    def __init__(self, largest_message: int, max_connections: int) -> None:
        """largest_message: bytes; the transport cuts off who sends more. max_connections: one more is closed
        as soon as it is there."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = LINGER_MS
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, largest_message)
        self._router.setsockopt(zmq.SNDHWM, SEND_LIMIT)
        self._router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._router.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5 * HEARTBEAT_MS)
        self._max_connections = max_connections
        self._open: set[int] = set()
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
        ]
        self._has_message = False
        self._in_use = threading.Lock()
        """Held by the owner but while it sleeps, and by who has borrowed the sockets."""
        self._in_use.acquire()

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it. Raises AddressError."""
        bound = bind(self._router, address)
        self._addresses.append(bound)
        return bound

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
            if any(each == self.wakeup.fileno() for each, _ in ready):
                self.wakeup.clear()
        else:
            self.wakeup.awake()
        self._has_message = multipart.has_message(self._router)

    def borrow(self) -> bool:
        """Take the sockets from their owner while it sleeps; False if it does not. Any thread; does not
        wait."""
        return self._in_use.acquire(blocking=False)

    def give_back(self) -> None:
        """Let the owner have its sockets again."""
        # Whoever uses a socket takes the news from its descriptor, by which the owner would have woken.
        news = multipart.has_message(self._router)
        self._in_use.release()
        if news:
            self.wakeup.wake()

    def connections(self) -> Iterator[int]:
        """The connections that have ended since the last call, by descriptor. Their numbers may be those of
        new connections by now: whoever hears of a client for the first time must ask here before."""
        while multipart.has_message(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            descriptor = int(event["value"])
            if event["event"] == zmq.Event.ACCEPTED:
                self._open.add(descriptor)
                if len(self._open) > self._max_connections:
                    _hang_up(descriptor)
            elif descriptor in self._open:
                self._open.discard(descriptor)
                yield descriptor

    def origin(self, frame: zmq.Frame) -> tuple[int, str]:
        """The descriptor and the address of the connection that a message came by; -1 for one that has
        ended since, or is not known."""
        try:
            descriptor, address = int(frame.get(zmq.SRCFD)), str(frame.get("Peer-Address"))
        except (zmq.ZMQError, ValueError):
            return -1, ""  # ipc where ZeroMQ knows no peer credentials
        return (descriptor if descriptor in self._open else -1), address

    @property
    def open_connections(self) -> int:
        """Connections at present, of clients and of others that found the address."""
        return len(self._open)

    def receive(self) -> list[zmq.Frame] | None:
        """The next message, its first frame the client's identity; None if none was there when `wait`
        returned or the one before was received."""
        if not self._has_message:
            return None
        frames = multipart.receive(self._router)
        self._has_message = multipart.has_message(self._router)
        return frames

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
        return bool(self._router.closed)

    def close(self) -> None:
        """Free the sockets, once what has been sent is on its way or LINGER_MS have passed."""
        # Before the address is free for the next evaluator. Unbinding would cut the connections off, and lose
        # the last answers.
        for address in self._addresses:
            remove_socket(address)
        self._addresses.clear()
        self._router.disable_monitor()
        self._monitor.close(linger=0)
        self._router.close()
        self._context.term()
        self.wakeup.close()


def _hang_up(descriptor: int) -> None:
    """Shut a connection down. The descriptor stays ZeroMQ's, which closes it when it finds the end."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=descriptor)  # Without a copy, for which there may be no room.
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()


def is_local(frame: zmq.Frame) -> bool:
    """Whether a message came from this machine: tcp peers are named by number, ipc ones as localhost:UID:…"""
    try:
        peer = frame.get("Peer-Address")
    except zmq.ZMQError:
        return True  # ipc where ZeroMQ knows no peer credentials
    return peer in ("", "::1") or str(peer).startswith(("127.", "::ffff:127.", "localhost:"))

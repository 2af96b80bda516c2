"""The service's sockets: one ROUTER for all clients, and what other threads wake their owner by."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import zmq

from evaluator.service.endpoints import bind, unbind
from protocol import multipart
from protocol.host.wakeup import Wakeup
from protocol.multipart import READABLE

HEARTBEAT_MS = 1000
"""How often idle connections are checked by the transport, so that vanished machines are forgotten."""

SEND_LIMIT = 1024
"""Answers waiting for one client that does not read; more are dropped."""


class Delivery(Enum):
    """What became of a message. DROPPED: the client does not read its answers. GONE: there is no such
    client any more."""

    SENT = "sent"
    DROPPED = "dropped"
    GONE = "gone"


class ServiceSockets:
    """Belongs to one thread; any other may call what `wakeup` has for others.

    wakeup: ends a `wait`.
    """

    def __init__(self, largest_message: int) -> None:
        """largest_message: bytes; the transport cuts off who sends more."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 200
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, largest_message)
        self._router.setsockopt(zmq.SNDHWM, SEND_LIMIT)
        self._router.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5 * HEARTBEAT_MS)
        self._addresses: list[str] = []
        self.wakeup = Wakeup()
        self._watched = [(self._router, READABLE), (self.wakeup.fileno(), READABLE)]
        self._has_message = False

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it. Raises AddressError."""
        bound = bind(self._router, address)
        self._addresses.append(bound)
        return bound

    def wait(self, timeout_ms: int) -> None:
        """Wait for a message or to be woken."""
        ready = multipart.wait(self._watched, timeout_ms if self.wakeup.falls_asleep() else 0)
        self.wakeup.awake()
        self._has_message = False
        for each, _ in ready:
            if each is self._router:
                self._has_message = True
            else:
                self.wakeup.clear()

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

    def unbind(self) -> None:
        """Stop listening, so that nobody connects any more."""
        for address in self._addresses:
            unbind(self._router, address)
        self._addresses.clear()

    @property
    def closed(self) -> bool:
        return bool(self._router.closed)

    def close(self) -> None:
        """Free the sockets."""
        self._router.close()
        self._context.term()
        self.wakeup.close()


def is_local(frame: zmq.Frame) -> bool:
    """Whether a message came from this machine: tcp peers are named by number, ipc ones as localhost:UID:…"""
    try:
        peer = frame.get("Peer-Address")
    except zmq.ZMQError:
        return True  # ipc where ZeroMQ knows no peer credentials
    return peer in ("", "::1") or str(peer).startswith(("127.", "::ffff:127.", "localhost:"))

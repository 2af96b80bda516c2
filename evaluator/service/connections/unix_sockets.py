# SPDX-License-Identifier: GPL-3.0-or-later
"""The sockets of a service that serves only the program that started it: ipc without ZeroMQ's threads.

The service's own thread sleeps on the clients' connections and reads whole messages. The thread that has an
answer writes it (protocol/core). No other thread wakes up here, nor in a client with such connections. Any
other client that speaks ZMTP 3 can connect, too.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluator.service.connections.access import Access, Door
from evaluator.service.connections.endpoints import AddressError, listening_socket, remove_socket
from evaluator.service.connections.gate import MOST_FRAMES, REASONS, SLACK_BYTES, ConnectionLimits
from evaluator.service.connections.transport import GONE, Arrived, Delivery, Origin
from protocol.codec import max_message_bytes, max_request_bytes
from protocol.host.wakeup import Wakeup

log = logging.getLogger("evaluator.sockets")

if sys.platform == "linux":
    from protocol._core import Hub

AVAILABLE = sys.platform == "linux"
"""True if this system supports these sockets."""

LINGER_MS = 1000
"""How long the last answers may take to leave when the service ends."""
"""Time limit for sending the last answers when the service ends."""
_NUMBER_BYTES = 8


class UnixSockets:
    """See `evaluator.service.connections.transport.Sockets`.

    Each client that can open the socket file is admitted and may administer. Of `limits`, those of one client
    and the number of connections apply; the sum over all clients is not limited.
    """

    def __init__(self, max_request: int, limits: ConnectionLimits, access: Access) -> None:
        """max_request: positions. access: notified of addresses. Raises OSError."""
        self._access = access
        message = max_request_bytes(max_request) + SLACK_BYTES
        self._hub = Hub(
            frame=max_message_bytes(max_request) + 65536,
            message=message,
            parts=MOST_FRAMES,
            kept=max(limits.client_bytes, message),
            connections=limits.connections,
        )
        self._addresses: list[str] = []
        self._user = ""
        self._cut: Counter[str] = Counter()
        self._closed = False
        self.wakeup = Wakeup()
        self.has_message = False
        self._hub.watch(self.wakeup.fileno())
        self._in_use = threading.Lock()
        """Held by the owner except while it sleeps, and by a thread that has borrowed the sockets."""
        self._in_use.acquire()

    def bind(self, address: str) -> str:
        """See `Sockets`. Supports one address only."""
        door = self._access.door(address)
        if door is Door.KEYS or self._addresses:
            raise AddressError(f"{address}: a private service listens at one address, without keys")
        listener, bound = listening_socket(address)
        self._hub.listen(listener.detach())
        self._addresses.append(bound)
        self._user = door.value
        self._access.bound(bound)
        return bound

    def wait(self, timeout_ms: int) -> bool:
        """See `Sockets`."""
        if timeout_ms and self.wakeup.falls_asleep():
            self._in_use.release()
            try:
                woken = self._hub.wait(timeout_ms)
            finally:
                self._in_use.acquire()
            self.wakeup.awake()
            if woken:
                self.wakeup.clear()
        else:
            self.wakeup.awake()
            self._hub.wait(0)
        self.has_message = self._hub.has_message
        return self._hub.has_news

    def borrow(self) -> bool:
        """See `Sockets`."""
        return self._in_use.acquire(blocking=False)

    def give_back(self) -> None:
        """See `Sockets`."""
        self._in_use.release()

    def connections(self) -> Iterator[int]:
        """See `Sockets`. Numbers are not reused."""
        return iter(self._hub.ended())

    def hang_up(self, descriptor: int) -> None:
        """See `Sockets`."""
        self._hub.hang_up(descriptor)

    def receive(self) -> Arrived | None:
        """See `Sockets`."""
        found = self._hub.take()
        self.has_message = self._hub.has_message
        return None if found is None else self.arrived(*found)

    @property
    def hub(self) -> Hub:
        """The owner of the connections."""
        return self._hub

    @staticmethod
    def connection(client: bytes) -> int:
        """Return the hub's number of a client."""
        return int.from_bytes(client, "little")

    @staticmethod
    def arrived(number: int, frames: Sequence[Any]) -> Arrived:
        """Return a message of the hub as Arrived."""
        return Arrived(number.to_bytes(_NUMBER_BYTES, "little"), frames, number)

    def origin(self, arrived: Arrived) -> Origin:
        """See `Sockets`."""
        address = self._hub.address_of(arrived.source)
        return Origin(arrived.source, GONE if address is None else address)

    def user(self, arrived: Arrived) -> str:
        """See `Sockets`. The user is the door of the address."""
        return self._user

    def send(self, client: bytes, frames: Sequence[Any]) -> Delivery:
        """See `Sockets`. A client with too much unread data is disconnected."""
        sent = self._hub.send(self.connection(client), frames)
        return Delivery.SENT if sent else Delivery.GONE

    @property
    def addresses(self) -> tuple[str, ...]:
        """See `Sockets`."""
        return tuple(self._addresses)

    @property
    def open_connections(self) -> int:
        """See `Sockets`."""
        return len(self._hub)

    @property
    def buffered_bytes(self) -> int:
        """See `Sockets`. Not counted here."""
        return 0

    @property
    def closed_connections(self) -> Mapping[str, int]:
        """See `Sockets`."""
        return dict(self._cut)

    def attend(self) -> None:
        """See `Sockets`. File permissions replace authentication."""
        for address, reason in self._hub.news():
            self._cut[reason] += 1
            log.warning("closed a connection from %s: %s", address or "?", REASONS.get(reason, reason))

    @property
    def closed(self) -> bool:
        """See `Sockets`."""
        return self._closed

    def close(self) -> None:
        """See `Sockets`."""
        self._hub.stop_listening()
        for address in self._addresses:
            remove_socket(address)
        self._addresses.clear()
        self._hub.close(LINGER_MS)
        self._closed = True
        self.wakeup.close()

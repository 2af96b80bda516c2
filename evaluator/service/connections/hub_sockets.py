# SPDX-License-Identifier: GPL-3.0-or-later
"""The sockets of a service on Linux: clients without encryption at the native hub (protocol/core/zmtp),
clients with keys at a ROUTER of ZeroMQ.

The service's own thread sleeps on the clients' connections and reads whole messages. The thread that has an
answer writes it. No other thread wakes up here.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from evaluator.service.connections.access import Access, Domain
from evaluator.service.connections.endpoints import AddressError, listening_socket, remove_socket
from evaluator.service.connections.limits import (
    MOST_FRAMES,
    REASONS,
    SLACK_BYTES,
    ClosedLog,
    ConnectionLimits,
)
from evaluator.service.connections.transport import GONE, Arrived, Client, Delivery, Origin
from evaluator.service.connections.zeromq import ZeroMqSockets
from protocol.common.wakeup import Wakeup
from protocol.wire.codec import max_message_bytes, max_request_bytes

if sys.platform == "linux":
    from protocol._core import Hub

AVAILABLE = sys.platform == "linux"
"""True if this system supports these sockets."""

LINGER_MS = 1000
"""Time limit for sending the last answers when the service ends."""


class HubSockets:
    """`Sockets` of transport.py, which documents the methods.

    A client of the hub is the number of its connection; one of ZeroMQ is bytes. The ROUTER is made for the
    first address that requires keys.
    """

    def __init__(
        self,
        max_request: int,
        limits: ConnectionLimits,
        access: Access,
        on_refused: Callable[[], None],
        *,
        private: bool,
    ) -> None:
        """max_request: positions. access: permissions. on_refused: called for each refused client. private:
        only the program that started the service connects, at one address, and may keep any number of
        requests. Raises OSError."""
        message = max_request_bytes(max_request)
        arriving = message + SLACK_BYTES
        # One request and its answer must fit while another request arrives, whatever the setting.
        kept = max(limits.client_bytes, 3 * arriving) - arriving
        self._most_kept = None if private else kept - SLACK_BYTES
        self.hub = Hub(
            frame=max_message_bytes(max_request) + 65536,
            message=message,
            parts=MOST_FRAMES,
            kept=max(limits.client_bytes, arriving) if private else kept // 2,
            connections=limits.connections,
            per_source=limits.most_silent,
            buffered=max(limits.buffered_bytes, arriving + kept),
        )
        self._access = access
        self._private = private
        self.wakeup = Wakeup()
        self._make_router = partial(ZeroMqSockets, max_request, limits, access, on_refused, self.wakeup)
        self._router: ZeroMqSockets | None = None
        self._addresses: list[str] = []
        self._log = ClosedLog()
        self._closed = False
        self.has_message = False
        self._turn = False
        """True if the next message is the ROUTER's, if it has one."""
        self.hub.watch(self.wakeup.fileno())
        self._in_use = threading.Lock()
        """Held by the owner except while it sleeps, and by a thread that has borrowed the sockets."""
        self._in_use.acquire()

    def bind(self, address: str) -> str:
        """A private service has one address."""
        domain = self._access.domain(address)
        if self._private and (domain is Domain.KEYS or self._addresses):
            raise AddressError(f"{address}: a private service listens at one address, without keys")
        if domain is Domain.KEYS:
            if self._router is None:
                self._router = self._make_router()
                for descriptor in self._router.descriptors:
                    self.hub.watch(descriptor)
            return self._router.bind(address)
        listener, bound = listening_socket(address)
        self.hub.listen(listener.detach(), local=domain is Domain.FILES)
        self._addresses.append(bound)
        self._access.bound(bound)
        return bound

    def wait(self, timeout_ms: int) -> bool:
        router = self._router
        if router is not None:
            timeout_ms = router.timeout(timeout_ms)
        # ZeroMQ's descriptor signals changes only, so ask for messages that wait already.
        if timeout_ms and self.wakeup.falls_asleep() and not (router is not None and router.look()):
            self._in_use.release()
            try:
                woken = self.hub.wait(timeout_ms)
            finally:
                self._in_use.acquire()
            self.wakeup.awake()
            if woken:
                self.wakeup.clear()
        else:
            self.wakeup.awake()
            woken = self.hub.wait(0)
        self.has_message = self.hub.has_message
        waiting = self.hub.has_events or bool(self._log.waiting)
        if router is not None:
            self.has_message |= router.look()
            waiting = waiting or router.has_events()
        return waiting

    def attend(self) -> None:
        self._log.log(self.hub.endings(), self.closed_connections)
        if self._router is not None:
            self._router.attend()

    def borrow(self) -> bool:
        return self._in_use.acquire(blocking=False)

    def give_back(self) -> None:
        # Using a socket of ZeroMQ consumes its descriptor's signal, which would have woken the owner.
        waiting = self._router is not None and self._router.look()
        self._in_use.release()
        if waiting:
            self.wakeup.wake()

    def connections(self) -> Iterator[int]:
        """Numbers of the hub are not reused."""
        yield from self.hub.ended()
        if self._router is not None:
            yield from (_OF_ROUTER + descriptor for descriptor in self._router.connections())

    def hang_up(self, descriptor: int) -> None:
        if descriptor < _OF_ROUTER:
            self.hub.hang_up(descriptor)
        elif self._router is not None:
            self._router.hang_up(descriptor - _OF_ROUTER)

    def receive(self) -> Arrived | None:
        """The hub and the ROUTER take turns."""
        router = self._router
        if router is not None and router.has_message and (self._turn or not self.hub.has_message):
            self._turn = False
            return router.receive()
        self._turn = True
        found = self.hub.take()
        self.has_message = self.hub.has_message or (router is not None and router.has_message)
        return None if found is None else Arrived(found[0], found[1], found[0])

    def origin(self, arrived: Arrived) -> Origin:
        if isinstance(arrived.client, int):
            address = self.hub.address_of(arrived.client)
            return Origin(arrived.client, GONE if address is None else address)
        assert self._router is not None
        descriptor, address = self._router.origin(arrived)
        return Origin(descriptor if descriptor < 0 else _OF_ROUTER + descriptor, address)

    def user(self, arrived: Arrived) -> str:
        """Without encryption, the user is the domain of the address."""
        if isinstance(arrived.client, int):
            domain = Domain.FILES if self.hub.is_local(arrived.client) else Domain.PLAIN
            return str(domain.value)
        assert self._router is not None
        return self._router.user(arrived)

    def admit(self, arrived: Arrived) -> bool:
        """The hub refuses connections."""
        return self._router is None or isinstance(arrived.client, int) or self._router.admit(arrived)

    def unread(self, client: Client) -> int:
        return self.hub.unread(client) if isinstance(client, int) else 0

    def keeps_too_much(self, client: Client, held: int) -> bool:
        """A key is trust."""
        most = self._most_kept
        return most is not None and isinstance(client, int) and held + self.hub.unread(client) > most

    def send(self, client: Client, frames: Sequence[Any]) -> Delivery:
        """A client with too much unread data is disconnected."""
        if isinstance(client, int):
            return Delivery.SENT if self.hub.send(client, frames) else Delivery.GONE
        assert self._router is not None
        return self._router.send(client, frames)

    @property
    def addresses(self) -> tuple[str, ...]:
        return (*self._addresses, *(() if self._router is None else self._router.addresses))

    @property
    def open_connections(self) -> int:
        return len(self.hub) + (0 if self._router is None else self._router.open_connections)

    @property
    def buffered_bytes(self) -> int:
        """Without clients that have keys."""
        return self.hub.buffered

    @property
    def closed_connections(self) -> Mapping[str, int]:
        counts = Counter({reason: count for reason, count in self.hub.counts().items() if reason in REASONS})
        if self._router is not None:
            counts.update(self._router.closed_connections)
        return dict(counts)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self.hub.stop_listening()
        for address in self._addresses:
            remove_socket(address)
        self._addresses.clear()
        if self._router is not None:
            self._router.close()
        self.hub.close(LINGER_MS)
        self._closed = True
        self.wakeup.close()


_OF_ROUTER = 1 << 62
"""Added to the descriptors of ZeroMQ's connections, to tell them from the hub's numbers."""

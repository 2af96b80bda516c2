# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients of the service and their requests in flight.

A session lasts from the first message of a connection until the connection ends or the client's key is
revoked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.requests import Request
from evaluator.service.connections.access import Access
from evaluator.service.connections.transport import GONE, Arrived, Client, Sockets
from protocol.common.keys.clients import Quota
from protocol.errors import NotAllowed, Overloaded
from protocol.wire.messages import PRIORITIES


class Usage:
    """The use of one key. name: in the list of clients. quota: its limits, replaced when the list is read
    again. requests: in flight. answered, positions, refused: counts of answers, of their positions, and of
    requests beyond a limit. Belongs to the I/O thread."""

    def __init__(self, name: str, quota: Quota) -> None:
        self.name = name
        self.quota = quota
        self.requests = 0
        self.answered = 0
        self.positions = 0
        self.refused = 0
        self._due_ms = 0.0
        """When the positions so far are paid for, at the key's rate."""

    def charge(self, request: Request) -> None:
        """Count a request in flight. Raises NotAllowed or Overloaded, which names the limit and when the
        request may come again."""
        quota, wanted = self.quota, PRIORITIES[request.rank]
        try:
            if quota.classes and wanted not in quota.classes:
                raise NotAllowed(
                    f"the key {self.name} is for classes={','.join(quota.classes)}, not {wanted}"
                )
            if quota.requests and self.requests >= quota.requests:
                raise Overloaded(
                    f"{self.requests} requests of the key {self.name} are in flight, and it has "
                    f"requests={quota.requests}: try again after an answer"
                )
            if self._due_ms > request.arrived_ms:
                raise Overloaded(
                    f"the key {self.name} has rate={quota.rate} positions a second: try again in "
                    f"{ceil(self._due_ms - request.arrived_ms)} ms"
                )
        except (NotAllowed, Overloaded):
            self.refused += 1
            raise
        if quota.rate:  # A second's worth may come at once.
            paid_ms = max(self._due_ms, request.arrived_ms - 1000.0)
            self._due_ms = paid_ms + 1000.0 * request.count / quota.rate
        else:
            self._due_ms = 0.0
        self.requests += 1

    def release(self, request: Request, *, answered: bool) -> None:
        """Stop counting a request in flight. answered: with a result."""
        self.requests -= 1
        self.answered += answered
        self.positions += request.count * answered


log = logging.getLogger("evaluator.service")

LOOPBACK = ("127.", "::1", "::ffff:127.")
"""Beginnings of the addresses of tcp clients on this machine, as ZeroMQ names them."""


@dataclass(slots=True, eq=False)
class ClientSession:
    """A connected client.

    descriptor: of its connection; -1 if unknown. address: where it comes from, as the transport names it.
    user: identity under which it was admitted (see Access). key: name of its key in the list of clients.
    since: start of the session in seconds of the Unix epoch. name: what the client calls itself. greeted:
    True after its hello. hello: id of a hello that waits for the networks; 0 for none. network: name of the
    default network in its last welcome. follows: it has negotiated network names in results and notices of
    changed networks. requests: in flight, by id, each with its network. in_flight: positions of these. held:
    bytes of these and their answers. answered, positions, errors: counts of results, their positions, and
    errors. rank: class of the last answered request; -1 before. payer: whose share of a device its requests
    use: its key's; without a key, its address's, which names a program at an ipc address; its own at a
    loopback address, where a proxy may have the clients of many hosts. usage: of its key; None without one.
    """

    client: Client
    descriptor: int = -1
    address: str = ""
    user: str = ""
    key: str = ""
    since: float = field(default_factory=time.time)
    name: str = ""
    greeted: bool = False
    hello: int = 0
    network: str = ""
    follows: bool = False
    requests: dict[int, tuple[Request, ServedNetwork]] = field(default_factory=dict)
    in_flight: int = 0
    held: int = 0
    answered: int = 0
    positions: int = 0
    errors: int = 0
    rank: int = -1
    payer: Hashable = None
    usage: Usage | None = None

    def __post_init__(self) -> None:
        has_address = self.address and not self.address.startswith(LOOPBACK)
        self.payer = self.user if self.key else self.address if has_address else self.client

    @property
    def who(self) -> str:
        """The client as the log names it: its key, or its process and user at an ipc address, or its
        address."""
        if self.key:
            return f"the key {self.key}"
        if self.address.startswith("localhost:"):
            user, _, process = self.address.split(":")[1:4]
            return f"process {process} of user {user}"
        return self.address or "a client without an address"

    def charge(self, request: Request, most: int, sockets: Sockets) -> None:
        """Count a request in flight, and the bytes of it and its answer. most: positions in flight. Raises
        Overloaded beyond a limit, and NotAllowed for a class that its key may not use."""
        if self.in_flight + request.count > most:
            raise Overloaded(
                f"{self.in_flight} positions of this client are queued, of at most {most}; "
                "keep fewer in flight"
            )
        if sockets.keeps_too_much(self.client, self.held + request.footprint):
            raise Overloaded(
                f"{self.held} bytes of this client's requests and {sockets.unread(self.client)} of answers "
                "that it has not read are kept (see max_client_bytes): read answers first"
            )
        if self.usage is not None:
            self.usage.charge(request)
            request.share = self.usage.quota.share
        self.in_flight += request.count
        self.held += request.footprint

    def release(self, request: Request, *, answered: bool = False) -> None:
        """Stop counting a request. answered: with a result."""
        self.in_flight -= request.count
        self.held -= request.footprint
        if self.usage is not None:
            self.usage.release(request, answered=answered)

    def description(self, sockets: Sockets) -> dict[str, Any]:
        """Return the session's entry of a list of clients."""
        in_flight = dict.fromkeys(PRIORITIES, 0)
        for request, _ in list(self.requests.values()):  # a copy: other threads may change it
            in_flight[PRIORITIES[request.rank]] += request.count
        return {
            "name": self.name,
            "address": self.address,
            "key": self.key,
            "since": self.since,
            "network": self.network,
            "requests_in_flight": len(self.requests),
            "positions_in_flight": in_flight,
            "requests": self.answered,
            "positions": self.positions,
            "errors": self.errors,
            "held_bytes": self.held,
            "unread_bytes": sockets.unread(self.client),
        }


class Sessions:
    """All connected clients that have sent a message. Belongs to the I/O thread, except `len` and iteration,
    which any thread may use.

    drop_requests: called with a client whose session has ended.
    """

    def __init__(self, access: Access, sockets: Sockets, drop_requests: Callable[[Client], None]) -> None:
        self._access = access
        self._sockets = sockets
        self._drop_requests = drop_requests
        self._sessions: dict[Client, ClientSession] = {}
        self._by_descriptor: dict[int, ClientSession] = {}
        self._usages: dict[str, Usage] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ClientSession]:
        """Iterate over a copy, in the order of arrival."""
        return iter([*self._sessions.values()])

    @property
    def usages(self) -> dict[str, dict[str, int]]:
        """Counts by the name of the key."""
        return {
            usage.name: {
                "in_flight": usage.requests,
                "requests": usage.answered,
                "positions": usage.positions,
                "refused": usage.refused,
            }
            for usage in [*self._usages.values()]
        }

    @property
    def busy(self) -> bool:
        """True if any request is in flight."""
        return any(session.requests for session in self._sessions.values())

    def take_hellos(self) -> list[tuple[ClientSession, int]]:
        """Return the sessions with an unanswered hello, and its id; the hello no longer waits."""
        waiting = [(session, session.hello) for session in self._sessions.values() if session.hello]
        for session, _ in waiting:
            session.hello = 0
        return waiting

    def begin(self, arrived: Arrived, *, include_disconnected: bool) -> ClientSession | None:
        """Start a session for the sender of a first message.

        include_disconnected: start it even if the client has disconnected. Otherwise return None then: no
        client reads the answer, and thousands of its messages may follow. Raises NotAllowed if the client's
        key was revoked after it connected, and Overloaded if there are too many clients.
        """
        self.forget_disconnected()  # a new connection may have the descriptor of an ended one
        origin = self._sockets.origin(arrived)
        if origin.address == GONE and not include_disconnected:
            return None
        user = self._sockets.user(arrived)
        if not self._access.may_use(user):
            self._sockets.hang_up(origin.descriptor)
            raise NotAllowed("the key of this client was revoked")
        if not self._sockets.admit(arrived):
            raise Overloaded("too many connections (max_connections): try again later")
        session = ClientSession(arrived.client, *origin, user, self._access.name(user))
        if session.key:
            session.usage = self._usages.setdefault(user, Usage(session.key, self._access.quota(user)))
        self._sessions[arrived.client] = session
        if origin.descriptor >= 0:
            self._by_descriptor[origin.descriptor] = session
        return session

    def of(self, client: Client) -> ClientSession | None:
        """Return the session of a client, or None."""
        return self._sessions.get(client)

    def finish(
        self, client: Client, identity: int, *, answered: bool
    ) -> tuple[Request, ServedNetwork] | None:
        """Remove a request and return it with its network; None if it was removed before. answered: with a
        result."""
        session = self._sessions.get(client)
        entry = None if session is None else session.requests.pop(identity, None)
        if session is not None and entry is not None:
            if answered:
                session.answered += 1
                session.positions += entry[0].count
                session.rank = entry[0].rank
            session.release(entry[0], answered=answered)
        return entry

    def forget_disconnected(self) -> None:
        """End the sessions of closed connections."""
        for descriptor in self._sockets.connections():
            session = self._by_descriptor.get(descriptor)
            if session is not None:
                self.forget(session.client)

    def forget(self, client: Client) -> None:
        """End the session of a disconnected client, and discard its requests."""
        session = self._sessions.pop(client, None)
        if session is not None:
            for request, _ in session.requests.values():
                session.release(request)
            if self._by_descriptor.get(session.descriptor) is session:
                del self._by_descriptor[session.descriptor]
        self._drop_requests(client)

    def reload_keys(self) -> None:
        """Read the list of clients again, and disconnect removed clients. Raises KeysError."""
        self._access.reload()
        self._usages = {user: usage for user, usage in self._usages.items() if self._access.may_use(user)}
        for user, usage in self._usages.items():
            usage.name, usage.quota = self._access.name(user), self._access.quota(user)
        for session in self:
            if self._access.may_use(session.user):
                session.key = self._access.name(session.user)
                continue
            log.warning("the key of %s (%s) was revoked: it is disconnected", session.key, session.name)
            self._sockets.hang_up(session.descriptor)
            self.forget(session.client)

"""What the service remembers of its clients, and of the requests that each has in flight."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from evaluator._core import Link
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.requests import Request
from protocol.errors import Overloaded
from protocol.messages import PRIORITIES


@dataclass(slots=True, eq=False)
class Session:
    """A client.

    descriptor: of its connection, -1 if unknown. address: where it comes from, as the transport names it.
    link: its connection to the gate, if there is one. user: who it was admitted as (see Access). key: what
    the list of clients calls its key, if it has one.
    since: when it came, in seconds of the Unix epoch. name: what it calls itself. greeted: it has said hello.
    hello: the id of a hello that waits for the networks, 0 if none does.
    network: the name of the default network that it was told of. follows: it has negotiated that results name
    their network and that it is notified of changed networks. requests: in flight by id, with the network
    that has each. answered, positions, errors: requests answered with a result, their positions, and errors.
    rank: the class of the last one answered, -1 before.
    """

    client: bytes
    descriptor: int = -1
    address: str = ""
    link: Link | None = None
    user: str = ""
    key: str = ""
    since: float = field(default_factory=time.time)
    name: str = ""
    greeted: bool = False
    hello: int = 0
    network: str = ""
    follows: bool = False
    requests: dict[int, tuple[Request, ServedNetwork]] = field(default_factory=dict)
    answered: int = 0
    positions: int = 0
    errors: int = 0
    rank: int = -1

    def charge(self, request: Request) -> None:
        """Count the bytes of a request and its answer. Raises Overloaded if there is no room for them."""
        if self.link is not None and not self.link.charge(request.footprint):
            raise Overloaded(
                f"{self.link.held} bytes of this client's requests and {self.link.unread} of answers that it "
                "has not read are kept (see max_client_bytes): read answers first"
            )

    def release(self, request: Request, *, answered: bool = False) -> None:
        """Count a request no more. answered: but its answer, which is about to be sent."""
        if self.link is not None:
            self.link.answer(request.footprint, request.answer_bytes if answered else 0)

    def description(self) -> dict[str, Any]:
        """As part of a list of clients."""
        in_flight = dict.fromkeys(PRIORITIES, 0)
        for request, _ in list(self.requests.values()):  # which may change meanwhile
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
            "held_bytes": 0 if self.link is None else self.link.held,
            "unread_bytes": 0 if self.link is None else self.link.unread,
        }


class Sessions:
    """All clients that are connected and have sent something. Belongs to the I/O thread, but for `len` and
    `everybody`."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._by_descriptor: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        """Whether any request is in flight."""
        return any(session.requests for session in self._sessions.values())

    def greeted(self) -> list[bytes]:
        """The clients that have said hello."""
        return [client for client, session in self._sessions.items() if session.greeted]

    def take_hellos(self) -> list[tuple[Session, int]]:
        """The sessions whose hello waits for an answer, with its id; it waits no more."""
        waiting = [(session, session.hello) for session in self._sessions.values() if session.hello]
        for session, _ in waiting:
            session.hello = 0
        return waiting

    def unanswered(self) -> list[tuple[bytes, int]]:
        """Client and id of every request in flight."""
        return [(client, identity) for client, each in self._sessions.items() for identity in each.requests]

    def everybody(self) -> list[Session]:
        """All clients, in the order in which they came. Any thread may ask: the list is its own, and what the
        sessions in it count goes on."""
        return list(self._sessions.values())

    def descriptions(self) -> list[dict[str, Any]]:
        """All clients, as a list of clients has them, in the order in which they came."""
        return [session.description() for session in self._sessions.values()]

    def __iter__(self) -> Iterator[Session]:
        """All of them, in the order in which they came; they may change meanwhile."""
        return iter([*self._sessions.values()])

    def add(
        self,
        client: bytes,
        descriptor: int,
        address: str,
        link: Link | None = None,
        *,
        user: str = "",
        key: str = "",
    ) -> Session:
        """A session for a new client. descriptor: of its connection, -1 if unknown."""
        session = self._sessions[client] = Session(client, descriptor, address, link, user, key)
        if descriptor >= 0:
            self._by_descriptor[descriptor] = session
        return session

    def of(self, client: bytes) -> Session | None:
        """The session of a client, if there is one."""
        return self._sessions.get(client)

    def on(self, descriptor: int) -> Session | None:
        """The session whose connection has this descriptor."""
        return self._by_descriptor.get(descriptor)

    def finish(self, client: bytes, identity: int, *, answered: bool) -> tuple[Request, ServedNetwork] | None:
        """Take a request out, and return it with its network; None if nobody waits for it any more.
        answered: with a result."""
        session = self._sessions.get(client)
        entry = None if session is None else session.requests.pop(identity, None)
        if session is not None and entry is not None:
            if answered:
                session.answered += 1
                session.positions += entry[0].count
                session.rank = entry[0].rank
            session.release(entry[0], answered=answered)
        return entry

    def take_back(self, client: bytes, request: Request) -> None:
        """Count the answer of a finished request no more: it could not be sent."""
        session = self._sessions.get(client)
        if session is not None and session.link is not None:
            session.link.answer(0, -request.answer_bytes)

    def forget(self, client: bytes) -> None:
        """Remove a client, whom nothing can be sent to any more."""
        session = self._sessions.pop(client, None)
        if session is not None and self._by_descriptor.get(session.descriptor) is session:
            del self._by_descriptor[session.descriptor]

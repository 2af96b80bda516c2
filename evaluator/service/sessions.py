"""What the service remembers of its clients, and of the requests that each has in flight."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from evaluator.scheduling.requests import Request
from evaluator.scheduling.served_network import ServedNetwork

IDLE_CLIENT_S = 600.0
"""A client without requests in flight is forgotten after this long; it may come back at any time."""


@dataclass(slots=True, eq=False)
class Session:
    """A client. last_seen: monotonic seconds. requests: in flight by id, with the network that has each."""

    client: bytes
    last_seen: float
    name: str = ""
    requests: dict[int, tuple[Request, ServedNetwork]] = field(default_factory=dict)


class Sessions:
    """All clients seen lately. Belongs to the I/O thread, but for `len`."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._next_sweep = time.monotonic() + IDLE_CLIENT_S / 4

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        """Whether any request is in flight."""
        return any(session.requests for session in self._sessions.values())

    def seen(self, client: bytes) -> Session:
        """The session of a client that has sent something, a new one for a new client."""
        now = time.monotonic()
        session = self._sessions.get(client)
        if session is None:
            session = self._sessions[client] = Session(client, now)
        session.last_seen = now
        return session

    def finish(self, client: bytes, identity: int) -> bool:
        """Take a request out; False if nobody waits for it any more."""
        session = self._sessions.get(client)
        return session is not None and session.requests.pop(identity, None) is not None

    def forget(self, client: bytes) -> None:
        """Remove a client, whom nothing can be sent to any more."""
        self._sessions.pop(client, None)

    def idle(self) -> list[bytes]:
        """The clients to forget, looked for a few times within IDLE_CLIENT_S: most calls cost nothing."""
        now = time.monotonic()
        if now < self._next_sweep:
            return []
        self._next_sweep = now + IDLE_CLIENT_S / 4
        return [
            client
            for client, session in self._sessions.items()
            if not session.requests and now - session.last_seen > IDLE_CLIENT_S
        ]

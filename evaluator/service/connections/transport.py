# SPDX-License-Identifier: GPL-3.0-or-later
"""What the service asks of its sockets, whatever they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from evaluator._core import ByteAccount
from protocol.host.wakeup import Wakeup

GONE = "gone"
"""The address of a client whose connection has ended."""


class Arrived(NamedTuple):
    """A message. client: a name for its connection, by which it is answered. source: what the sockets know
    its connection by."""

    client: bytes
    frames: Sequence[Any]
    source: Any


class Origin(NamedTuple):
    """Where a message came from. descriptor: of the ROUTER's connection, -1 if that has ended since, or is
    not known. address: the client's. link: its connection to the gate, if there is a gate and it has not
    ended."""

    descriptor: int
    address: str
    link: ByteAccount | None = None


class Delivery(Enum):
    """What became of a message. DROPPED: the client does not read its answers. GONE: there is no such
    client any more."""

    SENT = "sent"
    DROPPED = "dropped"
    GONE = "gone"


class Sockets(Protocol):
    """Belong to one thread; any other may call what `wakeup` has for others, and use `send` between `borrow`
    and `give_back`.

    A worker thread that has an answer sends it itself while the owner sleeps: to wake the owner for it would
    take both longer than to send it.

    wakeup: ends a `wait`.
    """

    wakeup: Wakeup

    def bind(self, address: str) -> str:
        """Listen at an address; returns it as clients must name it, with the key if that is demanded there.
        Raises AddressError."""

    def authenticate(self) -> None:
        """Say who of those that are connecting may; of many, the others in the rounds to come."""

    def wait(self, timeout_ms: int) -> None:
        """Wait for a message or to be woken."""

    def borrow(self) -> bool:
        """Take the sockets from their owner while it sleeps; False if it does not. Any thread; does not
        wait."""

    def give_back(self) -> None:
        """Let the owner have its sockets again."""

    def connections(self) -> Iterator[int]:
        """The connections that have ended since the last call, by descriptor. Code that hears of a client for
        the first time must ask here before: descriptors may come again."""

    def hang_up(self, descriptor: int) -> None:
        """End a connection, by its descriptor, if there is one."""

    def receive(self) -> Arrived | None:
        """The next message; None if none was there when `wait` returned or the one before was received."""

    def origin(self, arrived: Arrived) -> Origin:
        """Where a message came from."""

    def user(self, arrived: Arrived) -> str:
        """Who sent a message, as it was admitted."""

    def send(self, client: bytes, frames: Sequence[Any]) -> Delivery:
        """Send without waiting: nobody waits for a client that does not read."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where clients find the service, as they must name it."""

    @property
    def open_connections(self) -> int:
        """Connections at present, of clients and of others that found the address."""

    @property
    def buffered_bytes(self) -> int:
        """Of unfinished requests and unread answers, as far as they are counted."""

    @property
    def closed_connections(self) -> Mapping[str, int]:
        """Connections that were closed or refused, by reason."""

    def log_closed(self) -> None:
        """Log the connections that were closed, with reasons."""

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""

    def close(self) -> None:
        """Free the sockets, once what has been sent is on its way or a second has passed."""

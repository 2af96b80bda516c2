# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of the service's sockets, independent of the transport."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from protocol.common.wakeup import Wakeup

GONE = "gone"
"""Address of a client whose connection has ended."""


Client: TypeAlias = int | bytes
"""A connection, for replies."""


class Arrived(NamedTuple):
    """A received message. client: its sender. source: the transport's handle of the connection."""

    client: Client
    frames: Sequence[Any]
    source: Any


class Origin(NamedTuple):
    """The sender of a message. descriptor: number of the connection; -1 if it has ended or is unknown.
    address: of the client."""

    descriptor: int
    address: str


class Delivery(Enum):
    """The outcome of a send. DROPPED: the client does not read its answers. GONE: the client is no longer
    connected."""

    SENT = "sent"
    DROPPED = "dropped"
    GONE = "gone"


class Sockets(Protocol):
    """The service's sockets. They belong to one thread. Other threads may use `wakeup`, and may call `send`
    between `borrow` and `give_back`.

    A worker thread sends its answer itself while the owner sleeps. Waking the owner would take longer than
    sending, for both threads.

    wakeup: ends a `wait`. has_message: `receive` may return a message.
    """

    wakeup: Wakeup
    has_message: bool

    def bind(self, address: str) -> str:
        """Listen at an address and return it as clients must name it, with the key if one is required. Raises
        AddressError."""

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a message or to be woken. Returns True if connections may have ended or need `attend`."""

    def attend(self) -> None:
        """Answer authentication requests, of many only some, and log closed connections."""

    def borrow(self) -> bool:
        """Take the sockets from their sleeping owner. Returns False at once if it is awake. Any thread may
        call this."""

    def give_back(self) -> None:
        """Return the sockets to their owner."""

    def connections(self) -> Iterator[int]:
        """Return the descriptors of the connections that have ended since the last call. Call it before
        handling a new client: descriptors are reused."""

    def hang_up(self, descriptor: int) -> None:
        """End the connection with a descriptor, if it exists."""

    def receive(self) -> Arrived | None:
        """Return the next message; None if none was waiting at the last `wait` or `receive`."""

    def origin(self, arrived: Arrived) -> Origin:
        """Return the origin of a message."""

    def user(self, arrived: Arrived) -> str:
        """Return the user that sent a message."""

    def admit(self, arrived: Arrived) -> bool:
        """Count the sender of a first message as a client. Returns False if there are too many."""

    def unread(self, client: Client) -> int:
        """Return the bytes of answers that a client has not read, as far as they are counted. Any thread may
        call this."""

    def keeps_too_much(self, client: Client, held: int) -> bool:
        """Return True if a client may not keep this many bytes in addition to unread answers."""

    def send(self, client: Client, frames: Sequence[Any]) -> Delivery:
        """Send without blocking, even if the client does not read."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the service as clients must name them."""

    @property
    def open_connections(self) -> int:
        """Number of open connections, including unauthenticated ones."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of unfinished requests and unread answers, as far as they are counted."""

    @property
    def closed_connections(self) -> Mapping[str, int]:
        """Number of closed or refused connections by reason."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    def close(self) -> None:
        """Free the sockets after sent messages have left, at most after one second."""

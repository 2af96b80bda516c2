# SPDX-License-Identifier: GPL-3.0-or-later
"""Interface of a client's connection to one address, and the function that opens one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import zmq

from protocol.connections import multipart, unix
from protocol.connections.multipart import READABLE
from protocol.connections.unix import UnixConnection
from protocol.connections.zeromq import LONG_MS, ZeroMqConnection
from protocol.errors import EvaluatorLost

if TYPE_CHECKING:
    from protocol._core import Stream


class Connection(Protocol):
    """Used by one thread. A lost connection stays lost, but messages that arrived before can be received."""

    address: str

    def send(self, frames: Sequence[Any]) -> None:
        """Send a message without waiting. Raises EvaluatorLost."""

    def receive(self, deadline: float | None, interrupt: int | None = None) -> Sequence[Any] | None:
        """Return the frames of the next message, or None at the deadline or once `interrupt` is readable.
        deadline: monotonic seconds, None for no limit. interrupt: file descriptor. Raises EvaluatorLost."""

    def broken(self, reason: str) -> EvaluatorLost:
        """Mark the connection as lost because of invalid input; returns the error to raise."""

    @property
    def has_events(self) -> bool:
        """True if `receive` would return or raise at once although `watched` reports nothing."""

    @property
    def watched(self) -> list[tuple[Any, int]]:
        """Sockets or descriptors to poll until `receive` may return or raise."""

    @property
    def stream(self) -> Stream | None:
        """The socket for exchanging messages natively while the connection is not used otherwise.
        None if this kind of connection has none, or the connection is lost."""

    def close(self) -> None:
        """Close the connection without waiting for messages in flight."""


def connect(context: zmq.Context[Any], address: str, keys: str | Path = "") -> Connection:
    """Open a connection: natively for an ipc address if the system supports that, else through ZeroMQ.

    keys: folder of keys, as in credentials_for. Raises EvaluatorLost for an invalid address or unusable keys;
    `receive` reports whether anybody listens.
    """
    if unix.AVAILABLE and address.startswith("ipc://"):
        return UnixConnection(address)
    return ZeroMqConnection(context, address, keys)


def wait_for(connections: Sequence[Connection], timeout_ms: float | None, interrupt: int | None) -> None:
    """Wait until one connection has a message or may be lost, or the descriptor `interrupt` is readable.
    timeout_ms: None for no limit."""
    watched: list[tuple[Any, int]] = [] if interrupt is None else [(interrupt, READABLE)]
    for connection in connections:
        if connection.has_events:
            return
        watched += connection.watched
    multipart.wait(watched, LONG_MS if timeout_ms is None else max(0, math.ceil(timeout_ms)))

# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's connection to one address: frames out and in, and the reason when it is lost."""

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
    """Belongs to one thread. Once lost it stays lost: what had arrived before can still be received."""

    address: str

    def send(self, frames: Sequence[Any]) -> None:
        """Send a message without waiting. Raises EvaluatorLost."""

    def receive(self, deadline: float | None, interrupt: int | None = None) -> Sequence[Any] | None:
        """The frames of the next message; None if none came by the deadline (monotonic seconds, None: never),
        or before the file descriptor `interrupt` became readable. Raises EvaluatorLost."""

    def broken(self, reason: str) -> EvaluatorLost:
        """Count the connection as lost, because of what came through it; returns the error to raise."""

    @property
    def has_news(self) -> bool:
        """Whether `receive` has something to return or to raise of which `watched` does not tell any more."""

    @property
    def watched(self) -> list[tuple[Any, int]]:
        """What to wait for until `receive` may have something to return or to raise."""

    @property
    def stream(self) -> Stream | None:
        """The socket, if it is one that messages can be sent to and received from without the interpreter
        while the connection is not used; None where it is not, or the connection is lost."""

    def close(self) -> None:
        """End it without waiting for what is on its way."""


def connect(context: zmq.Context[Any], address: str, keys: str | Path = "") -> Connection:
    """A connection to an address: to an ipc address of its own kind where the system has that, else through
    ZeroMQ. keys: the folder that keys are kept in, as credentials_for has it.

    Raises EvaluatorLost for what is no address, and for keys that cannot be used; whether anybody listens
    shows when receiving.
    """
    if unix.AVAILABLE and address.startswith("ipc://"):
        return UnixConnection(address)
    return ZeroMqConnection(context, address, keys)


def wait_for(connections: Sequence[Connection], timeout_ms: float | None, interrupt: int | None) -> None:
    """Wait until one of these connections has a message or may be lost, or the descriptor `interrupt` is
    readable; at most timeout_ms (None: as long as it takes)."""
    watched: list[tuple[Any, int]] = [] if interrupt is None else [(interrupt, READABLE)]
    for connection in connections:
        if connection.has_news:
            return
        watched += connection.watched
    multipart.wait(watched, LONG_MS if timeout_ms is None else max(0, math.ceil(timeout_ms)))

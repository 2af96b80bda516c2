# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate in front of the ROUTER socket: what a client may make the service keep, in bytes.

The gate itself is native (evaluator/core/gate): it has the clients' connections, and passes their bytes on to
the ROUTER on a private address. It needs Linux; elsewhere clients connect to the ROUTER itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import zmq

from evaluator import _core
from evaluator.service.connections.access import Door
from evaluator.service.connections.endpoints import listening_socket, private_folder
from protocol.codec import max_message_bytes, max_request_bytes

log = logging.getLogger("evaluator.gate")

AVAILABLE = hasattr(_core, "Gate")
"""Whether this system has the gate."""

MOST_FRAMES = 64
"""Of one message. A longer one is closed before it is whole; less is answered with an error."""

GREETING_MS = 10_000
"""A connection that has not shown by then that it speaks ZeroMQ is closed."""

SLACK_BYTES = 1024 * 1024
"""Of errors and the like, which a client may leave unread beyond what requests are taken for."""

LOG_EVERY_S = 1.0
"""Closed connections are logged at most this often."""

REASONS = {
    "foreign": "it does not speak ZeroMQ's protocol (ZMTP 3, NULL or CURVE)",
    "late": "it said nothing",
    "silent": "it had not authenticated or sent a request, and another client needed its place",
    "malformed": "it broke ZeroMQ's protocol",
    "frame": "a frame was too large",
    "message": "a message was too large",
    "parts": f"a message had more than {MOST_FRAMES} frames",
    "unread": "it left too many answers unread (max_client_bytes)",
    "crowded": "all clients together left too much unread or unfinished (max_buffered_bytes), it the most",
    "connections": "there are as many clients as there may be (max_connections)",
    "descriptors": "the process has no file descriptors left for it",
    "asked": f"a message had more than {MOST_FRAMES} frames",
}
"""Why a connection was closed, in words."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """connections: clients at a time, at ipc addresses and again at the others. client_bytes: that one client
    may make the service keep, with its requests, their answers and what is on the way to either side.
    buffered_bytes: of unfinished requests and unread answers of all clients together. silent_per_address:
    connections of one address that have neither authenticated nor sent a request, at most a quarter of
    `connections`; 0 for that."""

    connections: int = 4096
    client_bytes: int = 44 * 1024 * 1024
    buffered_bytes: int = 1024 * 1024 * 1024
    silent_per_address: int = 0

    @property
    def most_silent(self) -> int:
        """The limit that `silent_per_address` means."""
        quarter = max(1, self.connections // 4)
        return min(self.silent_per_address or quarter, quarter)


class Gatekeeper:
    """The gate, the folder with its private addresses, and the log of closed connections. Belongs to the
    service's thread, but for `connections`, `buffered_bytes` and `closed`."""

    def __init__(self, limits: ConnectionLimits, max_request: int) -> None:
        """max_request: positions. Raises OSError."""
        message = max_request_bytes(max_request)
        arriving = message + SLACK_BYTES
        # One request and its answer must fit beside another that arrives, whatever the setting.
        kept = max(limits.client_bytes, 3 * arriving) - arriving
        self._gate = _core.Gate(
            frame=max_message_bytes(max_request) + 65536,
            message=message,
            parts=MOST_FRAMES,
            arriving=arriving,
            kept=kept,
            promised=kept - SLACK_BYTES,
            buffered=max(limits.buffered_bytes, arriving + kept),
            connections=limits.connections,
            per_source=limits.most_silent,
            greeting_ms=GREETING_MS,
        )
        self._folder = _folder()
        self._sockets: list[str] = []
        self._descriptors: list[int] = []
        self._log_at = 0.0
        self._logged = self.closed

    def bind(self, router: zmq.Socket[bytes], address: str, door: Door) -> str:
        """Let clients of an address come to the socket; returns the address as clients must name it. Raises
        AddressError."""
        listener, bound = listening_socket(address)
        path = str(self._folder / str(len(self._sockets)))
        try:
            router.bind(f"ipc://{path}")
        except zmq.ZMQError:
            listener.close()
            raise
        self._sockets.append(path)
        self._gate.listen(
            listener.detach(), self._lasting(path), local=door is Door.FILES, keys=door is Door.KEYS
        )
        return bound

    def _lasting(self, path: str) -> str:
        """A path of the socket for as long as this process lives: that of a descriptor. Its own goes with its
        folder, which a system removes when the user has logged out, or when it is old and in /tmp."""
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        lasting = f"/proc/self/fd/{descriptor}"
        return lasting if Path(lasting).exists() else path

    def link(self, frame: zmq.Frame) -> _core.ByteAccount | None:
        """The connection that a message came by; None for one that has ended since."""
        try:
            return self._gate.link_of(frame.get(_DESCRIPTOR))
        except zmq.ZMQError:
            return None

    @property
    def connections(self) -> int:
        """Connections at present, of clients and of others that found the address."""
        return len(self._gate)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of unfinished requests and unread answers."""
        return self._gate.buffered

    @property
    def closed(self) -> Mapping[str, int]:
        """How many connections the gate has closed or refused, by the keys of REASONS."""
        return {reason: count for reason, count in self._gate.counts().items() if reason in REASONS}

    def log_closed(self) -> None:
        """Log the connections closed since the last call; at most once in LOG_EVERY_S."""
        now = time.monotonic()
        if now < self._log_at:
            return
        self._log_at = now + LOG_EVERY_S
        news = self._gate.news()
        if not news:
            return
        closed = self.closed
        for reason in dict.fromkeys(reason for _, reason in news):
            addresses = list(dict.fromkeys(address or "?" for address, why in news if why == reason))
            count = closed[reason] - self._logged[reason]
            log.warning(
                "closed %s from %s: %s",
                "a connection" if count == 1 else f"{count} connections",
                ", ".join(addresses[:3]) + (" and others" if len(addresses) > 3 else ""),
                REASONS[reason],
            )
        self._logged = closed

    def stop_listening(self) -> None:
        """Take no more connections."""
        self._gate.stop_listening()

    def close(self, linger_ms: int) -> None:
        """End all connections, once what waits has been read or the time is over. The socket must have been
        closed before."""
        self._gate.close(linger_ms)
        while self._descriptors:
            os.close(self._descriptors.pop())
        shutil.rmtree(self._folder, ignore_errors=True)


_DESCRIPTOR = int(zmq.SRCFD)


def _folder() -> Path:
    """A fresh folder of mode 0700."""
    with contextlib.suppress(OSError):
        return private_folder()
    return Path(tempfile.mkdtemp(prefix="wavefront-"))

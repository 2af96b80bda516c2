# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate in front of the ROUTER socket, which limits the bytes that a client can make the service keep.

The gate itself is native (evaluator/core/gate). It owns the clients' connections and forwards their bytes to
the ROUTER at a private address. It needs Linux; elsewhere clients connect to the ROUTER itself.
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
"""True if this system has the gate."""

MOST_FRAMES = 64
"""Frames per message above which the client is disconnected. Smaller wrong counts get an error."""

GREETING_MS = 10_000
"""Time within which a connection must send ZeroMQ's greeting."""

SLACK_BYTES = 1024 * 1024
"""Allowance for unread errors and small replies, beyond the bytes of requests and answers."""

LOG_EVERY_S = 1.0
"""Minimum interval between logs of closed connections."""

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
"""Log text for each reason of closing a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """connections: concurrent clients at ipc addresses, and as many at the others. client_bytes: bytes that
    one client can make the service keep: requests, answers, and data in transit. buffered_bytes: unfinished
    requests and unread answers of all clients together. silent_per_address: connections of one address that
    have neither authenticated nor sent a request, at most a quarter of `connections`; 0 means a quarter."""

    connections: int = 4096
    client_bytes: int = 44 * 1024 * 1024
    buffered_bytes: int = 1024 * 1024 * 1024
    silent_per_address: int = 0

    @property
    def most_silent(self) -> int:
        """The effective limit of silent connections per address."""
        quarter = max(1, self.connections // 4)
        return min(self.silent_per_address or quarter, quarter)


class Gatekeeper:
    """The gate, the folder of its private addresses, and the log of closed connections. Belongs to the
    service's thread, except `connections`, `buffered_bytes` and `closed`."""

    def __init__(self, limits: ConnectionLimits, max_request: int) -> None:
        """max_request: positions. Raises OSError."""
        message = max_request_bytes(max_request)
        arriving = message + SLACK_BYTES
        # One request and its answer must fit while another request arrives, whatever the setting.
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
        """Accept clients at an address for the socket, and return the address as clients must name it. Raises
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
        """Return a path of the socket that is valid while this process lives: that of a descriptor. The
        system may remove the folder when the user logs out, or when it is old and in /tmp."""
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        lasting = f"/proc/self/fd/{descriptor}"
        return lasting if Path(lasting).exists() else path

    def link(self, frame: zmq.Frame) -> _core.ByteAccount | None:
        """Return the connection of a message; None if it has ended."""
        try:
            return self._gate.link_of(frame.get(_DESCRIPTOR))
        except zmq.ZMQError:
            return None

    @property
    def connections(self) -> int:
        """Number of open connections, including unauthenticated ones."""
        return len(self._gate)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of unfinished requests and unread answers."""
        return self._gate.buffered

    @property
    def closed(self) -> Mapping[str, int]:
        """Number of connections that the gate has closed or refused, by the keys of REASONS."""
        return {reason: count for reason, count in self._gate.counts().items() if reason in REASONS}

    def log_closed(self) -> None:
        """Log the connections closed since the last call, at most once per LOG_EVERY_S."""
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
        """Accept no more connections."""
        self._gate.stop_listening()

    def close(self, linger_ms: int) -> None:
        """End all connections once clients have read all waiting data or linger_ms has passed. Close the
        ROUTER socket before."""
        self._gate.close(linger_ms)
        while self._descriptors:
            os.close(self._descriptors.pop())
        shutil.rmtree(self._folder, ignore_errors=True)


_DESCRIPTOR = int(zmq.SRCFD)


def _folder() -> Path:
    """Create a folder of mode 0700."""
    with contextlib.suppress(OSError):
        return private_folder()
    return Path(tempfile.mkdtemp(prefix="wavefront-"))

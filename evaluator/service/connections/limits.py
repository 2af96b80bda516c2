# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of clients and connections, and the log of connections that were closed because of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

log = logging.getLogger("evaluator.sockets")

MOST_FRAMES = 64
"""Frames per message above which the client is disconnected. Smaller wrong counts get an error."""

SLACK_BYTES = 1024 * 1024
"""Allowance for unread errors and small replies, beyond the bytes of requests and answers."""

LOG_EVERY_S = 1.0
"""Minimum interval between logs of closed connections."""

REASONS = {
    "foreign": "it does not speak ZeroMQ's protocol (ZMTP 3, NULL)",
    "late": "it did not finish the handshake in time",
    "silent": "it had not authenticated or sent a request, and another client needed its place",
    "malformed": "it broke ZeroMQ's protocol",
    "frame": "a frame was too large",
    "message": "a message was too large",
    "parts": f"a message had more than {MOST_FRAMES} frames",
    "unread": "it left too many answers unread (max_client_bytes)",
    "crowded": "all clients together left too much unread or unfinished (max_buffered_bytes), it the most",
    "connections": "there are as many clients as there may be (max_connections)",
    "descriptors": "the process has no file descriptors left for it",
    "memory": "there was no memory for its messages",
}
"""Log text for each reason of closing a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """connections: concurrent clients at ipc addresses, and as many at the others. client_bytes: bytes that
    one client can make the service keep: requests, answers, and data in transit. buffered_bytes: unfinished
    requests and unread answers of all clients together. silent_per_address: connections of one address that
    have neither authenticated nor sent a request, at most a quarter of `connections`; 0 means a quarter.
    unauthenticated: connections without an accepted key, in addition to `connections`."""

    connections: int = 4096
    client_bytes: int = 44 * 1024 * 1024
    buffered_bytes: int = 1024 * 1024 * 1024
    silent_per_address: int = 0
    unauthenticated: int = 4096

    @property
    def most_silent(self) -> int:
        """The effective limit of silent connections per address."""
        quarter = max(1, self.connections // 4)
        return min(self.silent_per_address or quarter, quarter)


class ClosedLog:
    """Logs closed connections, at most once per LOG_EVERY_S. Belongs to the service's thread."""

    def __init__(self) -> None:
        self._log_at = 0.0
        self._logged: Mapping[str, int] = {}
        self.waiting: list[tuple[str, str]] = []
        """Address and reason of connections that `log` will log next."""

    def log(self, endings: Iterable[tuple[str, str]], closed: Mapping[str, int]) -> None:
        """Log connections, now or later. endings: some, by address and reason. closed: their number by
        reason, since the start."""
        self.waiting += endings
        now = time.perf_counter()
        if now < self._log_at or not self.waiting:
            return
        self._log_at = now + LOG_EVERY_S
        for reason in dict.fromkeys(reason for _, reason in self.waiting):
            addresses = list(dict.fromkeys(address or "?" for address, why in self.waiting if why == reason))
            count = closed[reason] - self._logged.get(reason, 0)
            log.warning(
                "closed %s from %s: %s",
                "a connection" if count == 1 else f"{count} connections",
                ", ".join(addresses[:3]) + (" and others" if len(addresses) > 3 else ""),
                REASONS.get(reason, reason),
            )
        self._logged = dict(closed)
        self.waiting.clear()

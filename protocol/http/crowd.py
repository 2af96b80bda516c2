# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections without a request so far, and the choice of one to close for a new connection."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

T = TypeVar("T")

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"there are too many connections\n"
)
"""Answer of an HTTP server to a connection that it closes to make room."""

_NETWORK_BITS = 64


class Crowd(Generic[T]):
    """Idle connections by source, oldest first. A source is an address (source_of)."""

    def __init__(self, most: int) -> None:
        """most: maximum connections of all sources. One source may have a quarter of them."""
        self._most = most
        self._most_of_one = max(1, most // 4)
        self._sources: dict[str, dict[T, None]] = {}
        self._source: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._source)

    def add(self, connection: T, source: str) -> None:
        """Add a connection that has sent no request."""
        self._source[connection] = source
        self._sources.setdefault(source, {})[connection] = None

    def remove(self, connection: T) -> bool:
        """Remove a connection that has sent a request or ended. Return False if it is not there."""
        source = self._source.pop(connection, None)
        if source is None:
            return False
        del self._sources[source][connection]
        if not self._sources[source]:
            del self._sources[source]
        return True

    def displaced_by(self, source: str) -> T | None:
        """Return the connection to close before accepting one from a source; None if there is room."""
        if len(self._sources.get(source, ())) >= self._most_of_one:
            return next(iter(self._sources[source]))
        return self.victim() if len(self) >= self._most else None

    def victim(self) -> T | None:
        """Return the oldest connection of the source with the most; None if there is no connection."""
        most = max(self._sources.values(), key=len, default=None)
        return None if most is None else next(iter(most))


def source_of(host: str) -> str:
    """Return the source of a numeric address: an IPv4 address, or the 64-bit network of an IPv6 address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS))


def is_loopback(source: str) -> bool:
    """Return True if a source (source_of) is this machine."""
    return source.startswith("127.") or source == source_of("::1")

# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections that have asked for nothing yet, and which of them makes room for another one."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

T = TypeVar("T")

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"there are too many connections\n"
)
"""What an HTTP server tells a connection that makes room."""

_NETWORK_BITS = 64


class Crowd(Generic[T]):
    """Connections by source, oldest first. A source is an address (source_of)."""

    def __init__(self, most: int) -> None:
        """most: connections of all sources. One source has at most a quarter of them."""
        self._most = most
        self._most_of_one = max(1, most // 4)
        self._sources: dict[str, dict[T, None]] = {}
        self._source: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._source)

    def add(self, connection: T, source: str) -> None:
        """Note a connection that has asked for nothing."""
        self._source[connection] = source
        self._sources.setdefault(source, {})[connection] = None

    def remove(self, connection: T) -> bool:
        """Forget a connection: it has asked for something, or it has ended. False if it is not there."""
        source = self._source.pop(connection, None)
        if source is None:
            return False
        del self._sources[source][connection]
        if not self._sources[source]:
            del self._sources[source]
        return True

    def displaced_by(self, source: str) -> T | None:
        """The connection that has to go before one more from a source comes; None if there is room."""
        if len(self._sources.get(source, ())) >= self._most_of_one:
            return next(iter(self._sources[source]))
        return self.victim() if len(self) >= self._most else None

    def victim(self) -> T | None:
        """The oldest connection of the source with the most; None if there is no connection."""
        most = max(self._sources.values(), key=len, default=None)
        return None if most is None else next(iter(most))


def source_of(host: str) -> str:
    """What stands for the place of a numeric address: an IPv4 address, or the 64 bits of an IPv6 network."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS))

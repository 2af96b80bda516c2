# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of connections: addresses, as far as limits distinguish them."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

_NETWORK_BITS = 64


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

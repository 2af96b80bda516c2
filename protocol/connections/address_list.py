# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of evaluators in settings: one or several, separated by commas, preferred one first.

    tcp://10.0.0.7:5577,tcp://[fe80::7]:5577,ipc:///run/wavefront/evaluator

A key may follow a tcp address after `#`; it stays part of the address.
This module is imported before `uciok`, so it must not import anything heavy.
"""

from __future__ import annotations

import re

from protocol.common.settings.spec import SettingsError, shown

HOW = "tcp://HOST:PORT, tcp://[IPV6]:PORT or ipc://PATH, several with commas between"

_TCP = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(%\w+)?\]|[^\s\[\]:/,]+):(?P<port>\d{1,5})")


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of a list; () for an empty text. Raises SettingsError that names the wrong one."""
    if not text.strip():
        return ()
    addresses = tuple(address.strip() for address in text.split(","))
    for address in addresses:
        _check(address, text)
    twice = next((address for address in addresses if addresses.count(address) > 1), None)
    if twice is not None:
        raise SettingsError(f"{shown(twice)} is named twice")
    return addresses


def is_near(address: str) -> bool:
    """Return True for ipc and loopback addresses. A loopback address may be the end of a tunnel."""
    if not address.startswith("tcp://"):
        return True
    host = address.removeprefix("tcp://").partition("#")[0].rpartition(":")[0].strip("[]").lower()
    return host in ("localhost", "::1") or host.startswith(("127.", "::ffff:127."))


def _check(address: str, text: str) -> None:
    if not address:
        raise SettingsError(f"an address is missing beside a comma in {shown(text)}")
    if address.startswith("ipc://"):
        if address == "ipc://":
            raise SettingsError("ipc:// names no path: ipc://PATH")
        return
    if not address.startswith("tcp://"):
        raise SettingsError(f"{shown(address)} is no address of an evaluator: {HOW}")
    place = _TCP.fullmatch(address.removeprefix("tcp://").partition("#")[0])
    if place is None:
        raise SettingsError(f"{shown(address)} is no address of an evaluator: {HOW}")
    if not 0 < int(place["port"]) < 65536:
        raise SettingsError(f"{shown(address)}: a port is from 1 to 65535")

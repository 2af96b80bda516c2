# SPDX-License-Identifier: GPL-3.0-or-later
"""Trusted services: a file with an address and its public key on each line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from protocol.common.keys.files import read_lines, write_lines
from protocol.common.keys.notation import KeysError, read_key, show_key

_HEADING = "Evaluators: address, public key."


def read_services(path: Path) -> Mapping[str, bytes]:
    """Return the keys of a file by address; none without a file. Raises KeysError that names the line."""
    services: dict[str, bytes] = {}
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if len(words) != 2 or not words[0].startswith("tcp://"):
                raise KeysError("an evaluator is tcp://HOST:PORT and its public key")
            services[_same(words[0])] = read_key(words[1])
        except KeysError as error:
            raise KeysError(f"{path}, line {number}: {error}") from None
    return services


def service_key(path: Path, address: str) -> bytes | None:
    """Return the key of the service at an address, None if the file has none. Raises KeysError."""
    return read_services(path).get(_same(address))


def trust(path: Path, address: str, key: bytes) -> None:
    """Store the key of the service at an address, replacing an earlier one. Raises KeysError."""
    host, colon, port = address.removeprefix("tcp://").rpartition(":")
    if not (address.startswith("tcp://") and host and colon and port.isdecimal()):
        raise KeysError(f"{address}: the address of an evaluator with a key is tcp://HOST:PORT")
    read_services(path)
    kept = [line for line in read_lines(path) if not _is_of(line, address)]
    write_lines(path, [*kept, f"{_same(address)} {show_key(key)}"], _HEADING)


def forget(path: Path, address: str) -> None:
    """Remove the key of an address. Raises KeysError."""
    if service_key(path, address) is None:
        known = ", ".join(read_services(path)) or "none"
        raise KeysError(f"{path}: no key of {address}; it has those of: {known}")
    write_lines(path, [line for line in read_lines(path) if not _is_of(line, address)], _HEADING)


def _is_of(line: str, address: str) -> bool:
    return [_same(word) for word in line.split()[:1]] == [_same(address)]


def _same(address: str) -> str:
    """Return an address in lower case: host names are case-insensitive."""
    return address.lower()

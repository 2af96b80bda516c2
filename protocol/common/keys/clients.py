# SPDX-License-Identifier: GPL-3.0-or-later
"""Allowed clients of a service: a file with name, rights, public key and quota on each line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.common.classes import PRIORITIES
from protocol.common.keys.files import read_lines, write_lines
from protocol.common.keys.notation import KeysError, read_key, show_key
from protocol.common.printing import printable

RIGHTS = ("play", "admin")
"""play: evaluations and status. admin: also changes to the service and information about other clients."""

_NAME = re.compile(r"[A-Za-z0-9_.@][A-Za-z0-9_.@-]{0,63}")

_HEADING = "Clients of the evaluator: name, rights (play or admin), public key, and limits if any."


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of all connections with one key together.

    classes: those it may use; empty: all. requests: most in flight; 0: no limit. rate: positions a second;
    0: no limit. share: of a device, relative to 1 of others.
    """

    classes: tuple[str, ...] = ()
    requests: int = 0
    rate: int = 0
    share: float = 1.0

    @classmethod
    def of(cls, words: Sequence[str]) -> Quota:
        """Read words like `classes=play,analysis` or `rate=20000`. Raises KeysError."""
        given: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            try:
                if name in given:
                    raise ValueError
                given[name] = _QUOTA[name](value)
            except (KeyError, ValueError):
                raise KeysError(
                    f"{printable(word)} is no limit: classes={','.join(PRIORITIES)} (some of these), "
                    "requests=N (in flight), rate=N (positions a second), share=X (0.01 to 100)"
                ) from None
        return cls(**given)

    def __str__(self) -> str:
        """Return the words of the limits that are set."""
        words = [f"classes={','.join(self.classes)}"] if self.classes else []
        words += [f"{name}={value}" for name in ("requests", "rate") if (value := getattr(self, name))]
        return " ".join(words + ([f"share={self.share:g}"] if self.share != 1 else []))


def _classes(text: str) -> tuple[str, ...]:
    classes = tuple(text.split(","))
    if not set(classes) <= {*PRIORITIES}:
        raise ValueError
    return classes


def _count(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and 0 < int(text) < 1 << 40):
        raise ValueError
    return int(text)


def _share(text: str) -> float:
    if not 0.01 <= float(text) <= 100:
        raise ValueError
    return float(text)


_QUOTA: Mapping[str, Callable[[str], Any]] = {
    "classes": _classes,
    "requests": _count,
    "rate": _count,
    "share": _share,
}


@dataclass(frozen=True, slots=True)
class AllowedClient:
    """One allowed client. name: its name in the file. rights: one of RIGHTS. key: its public key."""

    name: str
    rights: str
    key: bytes
    quota: Quota = Quota()

    @property
    def is_admin(self) -> bool:
        return self.rights == "admin"


def read_clients(path: Path) -> Mapping[bytes, AllowedClient]:
    """Return the clients of a file by key; none without a file. Raises KeysError that names the line."""
    clients: dict[bytes, AllowedClient] = {}
    for number, line in enumerate(read_lines(path), 1):
        try:
            client = _client(line)
            if client is None:
                continue
            if client.key in clients:
                raise KeysError(f"{clients[client.key].name} has this key, too")
        except KeysError as error:
            raise KeysError(f"{path}, line {number}: {error}") from None
        clients[client.key] = client
    return clients


def allow(path: Path, client: AllowedClient) -> None:
    """Add a client to a file, or replace the one with that name. Raises KeysError."""
    if client.rights not in RIGHTS:
        raise KeysError(f"rights are {' or '.join(RIGHTS)}, not {client.rights!r}")
    if not _NAME.fullmatch(client.name):
        raise KeysError(
            f"the name of a client is up to 64 letters, digits and any of _ . @ -, not {client.name!r}"
        )
    holder = read_clients(path).get(client.key)
    if holder is not None and holder.name != client.name:
        raise KeysError(f"{path}: {holder.name} has this key; revoke that one before")
    kept = [line for line in read_lines(path) if not _is_named(line, client.name)]
    kept.append(f"{client.name} {client.rights} {show_key(client.key)} {client.quota}".rstrip())
    write_lines(path, kept, _HEADING)


def revoke(path: Path, name: str) -> None:
    """Remove a client from a file, by name. Raises KeysError."""
    lines = read_lines(path)
    kept = [line for line in lines if not _is_named(line, name)]
    if len(kept) == len(lines):
        known = ", ".join(client.name for client in read_clients(path).values()) or "nobody"
        raise KeysError(f"{path}: no client {name!r}; it has: {known}")
    write_lines(path, kept, _HEADING)


def _client(line: str) -> AllowedClient | None:
    """Return the client of a line, None for an empty line or a comment."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    if len(words) < 3 or words[1] not in RIGHTS or not _NAME.fullmatch(words[0]):
        raise KeysError("a client is a name, play or admin, its public key, and limits if any")
    return AllowedClient(words[0], words[1], read_key(words[2]), Quota.of(words[3:]))


def _is_named(line: str, name: str) -> bool:
    return line.split()[:1] == [name]

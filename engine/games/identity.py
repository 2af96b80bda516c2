# SPDX-License-Identifier: GPL-3.0-or-later
"""What games depend on, as JSON data: games whose identities differ must not be mixed in one journal."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from engine.options import Options
from protocol.host.folders import expanded


def options_identity(options: Options, *, apart: Collection[str]) -> dict[str, Any]:
    """The options not at their default, without those in `apart`; a network file counts by its content."""
    changed = {
        entry.name: getattr(options, entry.name)
        for entry in fields(options)
        if entry.name not in apart and getattr(options, entry.name) != entry.default
    }
    if "weights" in changed:
        changed["weights"] = file_identity(options.weights)
    return changed


def file_identity(name: str) -> str:
    """What a file of this name is to games: its content, wherever it lies; the name itself if there is none
    that can be read."""
    path = expanded(name)
    try:
        if not name or not path.is_file():
            return name
        status = path.stat()
        return "sha256 " + _content_hash(path, status.st_size, status.st_mtime_ns)
    except OSError:  # Its reader reports that.
        return name


@cache
def _content_hash(path: Path, size: int, modified_ns: int) -> str:
    """SHA-256 of a file in hex, computed once for each state of it: networks are large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, one line each."""
    before, after = dict(_flat(old)), dict(_flat(new))
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            lines.append(f"{name}: {before.get(name, 'not set')!r} then, {after.get(name, 'not set')!r} now")
    return lines


def _flat(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    items: Iterator[tuple[Any, Any]]
    if isinstance(data, Mapping):
        items = iter(data.items())
    elif isinstance(data, list):
        items = iter(enumerate(data, 1))
    else:
        yield prefix, data
        return
    for key, value in items:
        yield from _flat(value, f"{prefix} {key}".strip())

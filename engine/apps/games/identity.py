# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of games: their dependencies as JSON data. One journal must have one identity."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from engine.options import Options
from protocol.common.folders import expanded


def options_identity(options: Options, *, apart: Collection[str]) -> dict[str, Any]:
    """Return the non-default options except `apart`. A network file is identified by its content."""
    changed = {
        entry.name: getattr(options, entry.name)
        for entry in fields(options)
        if entry.name not in apart and getattr(options, entry.name) != entry.default
    }
    if "weights" in changed:
        changed["weights"] = file_identity(options.weights)
    return changed


def file_identity(name: str) -> str:
    """Return a file's content hash as its identity, or the name if there is no readable file."""
    path = expanded(name)
    try:
        if not name or not path.is_file():
            return name
        status = path.stat()
        return "sha256 " + _content_hash(path, status.st_size, status.st_mtime_ns)
    except OSError:  # Its reader reports the error.
        return name


@cache
def _content_hash(path: Path, size: int, modified_ns: int) -> str:
    """Return a file's SHA-256 in hex, cached by size and time because networks are large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences of two identities, one line each."""
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

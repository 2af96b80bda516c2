# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources that an import has read: files and archive members, by name, size, time and content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A source at the time it was read.

    size, modified_ns: of the file, 0 for an archive member. digest: SHA-256 of the content, empty for an
    archive, whose members have digests.
    """

    name: str
    size: int = 0
    modified_ns: int = 0
    digest: str = ""

    @classmethod
    def of_file(cls, path: Path, digest: str = "") -> Source:
        """Return a file in its current state. Raises OSError."""
        status = path.stat()
        return cls(name_of(path), status.st_size, status.st_mtime_ns, digest)

    def entry(self) -> dict[str, Any]:
        """Return the source as JSON data."""
        return asdict(self)


class KnownSources:
    """The sources in a journal. Journals of earlier versions hold only names; these match by name."""

    def __init__(self, entries: Iterable[Mapping[str, Any]]) -> None:
        self._names: set[str] = set()
        self._sources: dict[str, Source] = {}
        for entry in entries:
            for source in entry["sources"]:
                if isinstance(source, str):
                    self._names.add(source)
                else:
                    self._sources[source["name"]] = Source(**source)

    def has_file(self, path: Path) -> bool:
        """Return True if a file was read and has not changed since. A new time alone is no change."""
        name = name_of(path)
        known = self._sources.get(name)
        if name in self._names or known is None:
            return name in self._names
        try:
            now = Source.of_file(path)
            if (now.size, now.modified_ns) == (known.size, known.modified_ns):
                return True
            if not known.digest or now.size != known.size:
                return False
            return digest_of_file(path) == known.digest
        except OSError:
            return False  # The import reports the error.

    def has_member(self, name: str, digest: str) -> bool:
        """Return True if an archive member was read with this content."""
        known = self._sources.get(name)
        return known is not None and known.digest == digest


def name_of(path: Path) -> str:
    """Return a file's name in the journal: its path, since two folders may have files of the same name."""
    return str(path.resolve())


def digest_of_file(path: Path) -> str:
    """Return the hex SHA-256 of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(data: bytes) -> str:
    """Return the hex SHA-256 of data."""
    return hashlib.sha256(data).hexdigest()

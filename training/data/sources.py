# SPDX-License-Identifier: GPL-3.0-or-later
"""Which sources an import has read: files and members of archives, by name, size, time and content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A source as it was read.

    size, modified_ns: of the file, 0 for a member of an archive. digest: SHA-256 of the content, empty for an
    archive, whose members have theirs.
    """

    name: str
    size: int = 0
    modified_ns: int = 0
    digest: str = ""

    @classmethod
    def of_file(cls, path: Path, digest: str = "") -> Source:
        """A file in its present state. Raises OSError."""
        status = path.stat()
        return cls(name_of(path), status.st_size, status.st_mtime_ns, digest)

    def entry(self) -> dict[str, Any]:
        """The source as JSON data."""
        return asdict(self)


class KnownSources:
    """The sources in a journal's entries. Journals of earlier versions hold names alone, which are enough."""

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
        """Whether a file was read, and has not changed since. A file with a new date alone has not."""
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
            return False  # The import reports why it cannot be read.

    def has_member(self, name: str, digest: str) -> bool:
        """Whether a member of an archive was read with this content."""
        known = self._sources.get(name)
        return known is not None and known.digest == digest


def name_of(path: Path) -> str:
    """What the journal calls a file: its path, so that two folders may have files of one name."""
    return str(path.resolve())


def digest_of_file(path: Path) -> str:
    """SHA-256 in hex of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Games and reviews of the page, kept for restarts: a file each in the user's data folder, or in memory."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from protocol.common.files import write_atomically
from protocol.common.http.middleware import HttpError
from protocol.common.printing import reason

_IDENTITY = re.compile(r"[A-Za-z0-9_-]{8,64}")


@dataclass(slots=True)
class Store:
    """The records of all clients. Thread-safe.

    folder: where they are files: a line of JSON, the head that lists show, and the content; None keeps them
    in memory. most_bytes: of all; the oldest are deleted. most_of_one: maximum bytes of one. log: told when
    files cannot be written, such as on a full disk; then memory alone has what is new.
    """

    folder: Path | None
    most_bytes: int
    most_of_one: int
    log: Callable[[str], None]
    _fails: bool = field(default=False, init=False)
    _kept: dict[str, bytes] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __post_init__(self) -> None:
        if self.folder is not None and self.folder.is_dir():
            files = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
            self._kept = {path.name: path.read_bytes() for path in files}

    def read(self, identity: str, owner: str | None) -> tuple[dict[str, Any], str]:
        """Return head and content of a record, both empty if there is none. owner: None finds that of any
        client. Raises HttpError."""
        head, _, content = self._kept.get(self._name(identity, owner), b"").partition(b"\n")
        found = _parsed(head)
        return found, content.decode() or str(found.get("state", ""))

    def write(self, identity: str, owner: str, head: dict[str, Any], content: str) -> None:
        """Keep a record. Raises HttpError."""
        name = self._name(identity, owner)
        data = json.dumps({"identity": identity, **head}).encode() + b"\n" + content.encode(errors="replace")
        if len(data) > self.most_of_one:
            raise HttpError(413, f"{len(data):,} bytes are more than {self.most_of_one:,}")
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = data  # The newest is last.
            self._change_file(name, lambda path: write_atomically(path, data))
            while sum(map(len, self._kept.values())) > self.most_bytes:
                self._forget(next(iter(self._kept)))

    def delete(self, identity: str, owner: str | None) -> None:
        """Delete a record; there may be none. Raises HttpError."""
        with self._lock:
            self._forget(self._name(identity, owner))

    def listed(self, owner: str) -> list[dict[str, Any]]:
        """Return the heads of a client's records, the newest first."""
        with self._lock:
            mine = [data for name, data in self._kept.items() if name.startswith(_prefix(owner))]
        return [head for data in reversed(mine) if (head := _parsed(data.partition(b"\n")[0]))]

    def _forget(self, name: str) -> None:
        self._kept.pop(name, None)
        self._change_file(name, lambda path: path.unlink(missing_ok=True))

    def _change_file(self, name: str, change: Callable[[Path], None]) -> None:
        """Change a record's file, if records are files. The first failure in a row is logged."""
        if self.folder is None:
            return
        try:
            change(self.folder / name)
            self._fails = False
        except OSError as error:
            if not self._fails:
                self.log(f"cannot write in {self.folder}: {reason(error)}; what is new is lost at the end")
            self._fails = True

    def _name(self, identity: str, owner: str | None) -> str:
        if not _IDENTITY.fullmatch(identity):
            raise HttpError(422, "an identity has 8 to 64 letters, digits, hyphens and underscores")
        end = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
        if owner is not None:
            return _prefix(owner) + end
        return next((name for name in list(self._kept) if name.endswith(end)), end)


def _parsed(head: bytes) -> dict[str, Any]:
    try:
        found = json.loads(head)
        return found if isinstance(found.get("identity"), str) else {}
    except (ValueError, AttributeError):  # No record, or a file that somebody changed.
        return {}


def _prefix(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:16] + "."

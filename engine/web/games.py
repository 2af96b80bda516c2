# SPDX-License-Identifier: GPL-3.0-or-later
"""Games of the page, kept for reloads and restarts: one file each in the user's data folder, or in memory."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.host.files import write_atomically
from protocol.http.middleware import HttpError

MOST_BYTES = 1 << 20
"""Maximum size of one game."""

_IDENTITY = re.compile(r"[A-Za-z0-9_-]{8,64}")


@dataclass(slots=True)
class StoredGames:
    """The games of all clients. A client sees its own only.

    folder: where they are files; None keeps them in memory. most_bytes: of all; the oldest are deleted.
    """

    folder: Path | None
    most_bytes: int
    _kept: dict[str, bytes] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.folder is not None and self.folder.is_dir():
            files = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
            self._kept = {path.name: path.read_bytes() for path in files}

    def read(self, owner: str, identity: str) -> dict[str, Any]:
        """Return a game as it was written, with an empty state if there is none. Raises HttpError."""
        data = self._kept.get(_name(owner, identity))
        return _parsed(data) if data else {"title": "", "state": ""}

    def write(self, owner: str, identity: str, title: str, state: str) -> None:
        """Keep a game. Raises HttpError and OSError."""
        name = _name(owner, identity)
        data = json.dumps({"identity": identity, "title": title[:200], "state": state}).encode()
        if len(data) > MOST_BYTES:
            raise HttpError(413, f"the game has {len(data):,} bytes, more than {MOST_BYTES:,}")
        self._kept.pop(name, None)
        self._kept[name] = data  # The newest is last.
        if self.folder is not None:
            write_atomically(self.folder / name, data)
        while sum(map(len, self._kept.values())) > self.most_bytes:
            self._forget(next(iter(self._kept)))

    def delete(self, owner: str, identity: str) -> None:
        """Delete a game; there may be none. Raises HttpError and OSError."""
        self._forget(_name(owner, identity))

    def listed(self, owner: str) -> list[dict[str, str]]:
        """Return identity and title of a client's games, the newest first."""
        mine = [_parsed(data) for name, data in self._kept.items() if name.startswith(_prefix(owner))]
        return [{"identity": each["identity"], "title": each["title"]} for each in reversed(mine)]

    def _forget(self, name: str) -> None:
        self._kept.pop(name, None)
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
        return {name: str(found[name]) for name in ("identity", "title", "state")}
    except (ValueError, KeyError, TypeError):  # A file that somebody changed.
        return {"identity": "", "title": "", "state": ""}


def _prefix(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:16] + "."


def _name(owner: str, identity: str) -> str:
    if not _IDENTITY.fullmatch(identity):
        raise HttpError(422, "a game's identity has 8 to 64 letters, digits, hyphens and underscores")
    return f"{_prefix(owner)}{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"

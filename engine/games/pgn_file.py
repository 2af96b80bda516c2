"""The PGN file beside a journal: it grows game by game, and is cut back to what the journal knows of."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from engine.games.journal import JournalError


class PgnFile:
    """An open PGN file. Belongs to one thread at a time."""

    def __init__(self, path: Path, end: int, log: Callable[[str], None]) -> None:
        """Open or begin the file, and cut off what stands behind `end` (bytes): games that do not count. log
        is told when the file is shorter than that. Raises JournalError."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("r+b" if path.exists() else "w+b")
            size = self._file.seek(0, os.SEEK_END)
            if size < end:
                log(f"{path} is shorter than the journal says: games of before are missing in it")
                end = size
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as error:
            raise JournalError(f"cannot open {path}: {error.strerror}") from None

    def append(self, text: str) -> int:
        """Write a game; when this returns it is on the disk. Returns where the file ends now. Raises
        JournalError."""
        try:
            self._file.write(text.encode("utf-8"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(f"cannot write {self._path}: {error.strerror}") from None
        return self._file.tell()

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

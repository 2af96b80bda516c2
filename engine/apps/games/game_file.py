# SPDX-License-Identifier: GPL-3.0-or-later
"""The PGN file of a game in progress: it holds the game after each move, behind earlier games."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path

from protocol.common.files import lock, open_to_append, replace_end

PGN_BEGINNINGS = b"[{;%0123456789"
"""First characters of PGN files: tags, comments or a move number."""


class GameFile:
    """The file of one game. It is locked while it is open, because two games would overwrite each other."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises OSError, whose strerror gives the reason."""
        if not path.parent.is_dir():
            raise OSError(errno.ENOENT, "there is no such folder", str(path.parent))
        self.path = path
        self._created = not os.path.lexists(path)
        self._begin = self._end = 0
        self._gap = b""
        self._open()

    def write(self, text: str) -> None:
        """Replace what `write` wrote before. After a failure, the file holds that still. Raises OSError."""
        if self._changed_by_others():
            self._file.close()
            self._open()
        data = self._gap + text.encode("utf-8", "replace")
        self._end = replace_end(self._file, data, begin=self._begin)

    def close(self) -> None:
        """Close the file, and remove it if it is new and empty. Idempotent."""
        if not self._file.closed and self._created and self._end == 0:
            with suppress(OSError):
                self.path.unlink()
        self._file.close()

    def _open(self) -> None:
        """Open the file for a game at its end. Raises OSError."""
        self._file: FileIO = open_to_append(self.path)
        try:
            if not _lock(self._file):
                raise OSError(errno.EBUSY, "in use by another program; give another file", str(self.path))
            beginning = self._file.read(4096) or b""
            text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
            if text and text[0] not in PGN_BEGINNINGS:
                raise OSError(errno.EINVAL, "it is not a PGN file", str(self.path))
            self._begin = self._end = self._file.seek(0, os.SEEK_END)
            self._file.seek(max(0, self._end - 4))
            last = (self._file.read(4) or b"").replace(b"\r", b"")
        except BaseException:
            self._file.close()
            raise
        newlines = len(last) - len(last.rstrip(b"\n"))
        self._gap = b"\n" * max(0, 2 - newlines) if self._end else b""

    def _changed_by_others(self) -> bool:
        """Return whether the path is another file by now, or the file is not as we left it."""
        mine = os.fstat(self._file.fileno())
        try:
            found = self.path.stat()
        except OSError:
            return True
        return not os.path.samestat(mine, found) or mine.st_size != self._end


def _lock(file: FileIO) -> bool:
    """Lock a file, if its file system has locks. Return False if another process has it."""
    try:
        return lock(file.fileno())
    except OSError:
        return True

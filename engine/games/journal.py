# SPDX-License-Identifier: GPL-3.0-or-later
"""An append-only file of JSON lines that survives its writer: the first line says what it is about, every
further one is an entry. An entry counts from the moment its line is on the disk.

A line truncated by the writer's death is discarded when the file is opened again, and written over by
the next entry: a file that turns out to be something else stays as it was. The file is locked while it is
open, so that two processes cannot continue the same one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from protocol.host.files import append_whole, open_to_append

LOCK_OFFSET = 1 << 40
"""Where Windows locks a byte: beyond any content, because its locks keep others from reading."""


class JournalError(RuntimeError):
    """A journal that cannot be used. The message names the file and says what to do."""


class Journal:
    """An open journal. `header` and `entries` are what it held when it was opened.

    Belongs to one thread at a time.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any], *, restart: bool = False) -> None:
        """Open a journal, or begin one with `header`; restart forgets what is there. Raises JournalError."""
        self.path = Path(path)
        self.entries: list[dict[str, Any]] = []
        try:
            self._file = open_to_append(self.path)
        except OSError as error:
            raise JournalError(f"cannot open {self.path}: {error.strerror}") from None
        try:
            try:
                locked = _lock(self._file.fileno())
            except OSError as error:  # Some network file systems.
                raise JournalError(f"cannot lock {self.path}: {error.strerror}") from None
            if not locked:
                raise JournalError(f"{self.path} is in use by another process")
            self._end = 0
            lines = [] if restart else self._load(_line(header))
            if lines:
                self.header, *self.entries = lines
            else:
                self.header = dict(header)
                self.append(header)
        except BaseException:
            self._file.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry; when this returns it is on the disk. Raises JournalError."""
        try:
            self._end = append_whole(self._file, _line(entry), end=self._end)
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror}") from None

    def last(self, key: str) -> int:
        """A number in the last of `entries`, 0 if it is not there. Raises JournalError."""
        value = self.entries[-1].get(key, 0) if self.entries else 0
        if not isinstance(value, int) or value < 0:
            raise JournalError(
                f"{self.path}: the last line is damaged ({key} is {value!r}): repair it, or move the file "
                "away to start anew"
            )
        return value

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, header: bytes) -> list[dict[str, Any]]:
        """The whole lines. A truncated end is discarded; where nothing stands before it, it must
        be the beginning of a line as `header`."""
        lines: list[dict[str, Any]] = []
        *whole, cut = self._file.readall().split(b"\n")
        for number, line in enumerate(whole, 1):
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise ValueError("no object")
            except ValueError as error:
                raise JournalError(
                    f"{self.path}, line {number}, is damaged ({error}): repair it, "
                    "or move the file away to start anew"
                ) from None
            lines.append(entry)
            self._end += len(line) + 1
        kind = header.partition(b",")[0].rstrip(b"}\n")
        if not lines and cut.strip(b"\0") and not (cut.startswith(kind) or kind.startswith(cut)):
            raise JournalError(f"{self.path} is no journal: move it away, or choose another name")
        return lines


def _line(entry: Mapping[str, Any]) -> bytes:
    """An entry as it stands in the file. Bytes of a command line that are no text come back as they were."""
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _lock(descriptor: int) -> bool:
    """Lock an open file for this process; the lock ends with it. False if another one has it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

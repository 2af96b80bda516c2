"""An append-only file of JSON lines that survives its writer: the first line says what it is about, every
further one is an entry. An entry counts from the moment its line is on the disk.

A line that was cut off by the writer's death is dropped when the file is opened again. The file is locked
while it is open, so that two processes cannot continue the same one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._file = os.fdopen(os.open(self.path, flags, 0o666), "r+b")
        except OSError as error:
            raise JournalError(f"cannot open {self.path}: {error.strerror}") from None
        try:
            if not _lock(self._file.fileno()):
                raise JournalError(f"{self.path} is in use by another process")
            if restart:
                self._file.truncate(0)
            lines = self._load()
        except BaseException:
            self._file.close()
            raise
        if lines:
            self.header, *self.entries = lines
        else:
            self.header = dict(header)
            self.append(header)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry; when this returns it is on the disk. Raises JournalError."""
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(line.encode("utf-8"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # A full disk: half a line must not stand before the next one.
                self._file.truncate(end)
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

    def _load(self) -> list[dict[str, Any]]:
        """The whole lines; what was cut off behind them is dropped."""
        lines: list[dict[str, Any]] = []
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
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
            whole += len(line)
        self._file.truncate(whole)
        return lines


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

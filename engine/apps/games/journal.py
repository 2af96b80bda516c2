# SPDX-License-Identifier: GPL-3.0-or-later
"""A crash-safe, append-only file of JSON lines: a header, then one entry per line.

An entry counts once its line is on disk. A line truncated by a crash is ignored when the file is opened, and
the next entry overwrites it. So opening a file of another kind does not change it. The file is locked while
it is open, so that two processes cannot continue it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from engine.apps.games.identity import differences
from protocol.common.closing import Closing
from protocol.common.files import append_whole, lock, open_to_append
from protocol.common.printing import ReportedError, failing_as
from protocol.common.version import __version__

T = TypeVar("T")

FORMAT = 1
"""Version of the entries of a campaign."""


class JournalError(ReportedError, RuntimeError):
    """A journal is unusable. The message gives the file and the remedy."""


class Journal(Closing):
    """An open journal. One thread at a time may use it.

    header, entries: its contents when it was opened.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any], *, restart: bool = False) -> None:
        """Open a journal, or create one with `header`. restart: discard its contents. Raises JournalError."""
        self.path = Path(path)
        self.entries: list[dict[str, Any]] = []
        with failing_as(JournalError, f"cannot open {self.path}"):
            self._file = open_to_append(self.path)
        try:
            with failing_as(JournalError, f"cannot lock {self.path}"):  # Some network file systems.
                locked = lock(self._file.fileno())
            if not locked:
                raise JournalError(f"{self.path} is in use by another process")
            self._end = 0
            kind = _line(header).partition(b",")[0].rstrip(b"}\n")
            if restart:
                self._check_kind(kind)
            lines = [] if restart else self._load(kind)
            if lines:
                self.header, *self.entries = lines
            else:
                self.header = dict(header)
                self.append(header)
        except BaseException:
            self._file.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry to disk, and sync it. Raises JournalError."""
        with failing_as(JournalError, f"cannot write {self.path}"):
            self._end = append_whole(self._file, _line(entry), end=self._end)

    def last(self, key: str) -> int:
        """Return a number of the last entry; 0 if it is missing. Raises JournalError."""
        value = self.entries[-1].get(key, 0) if self.entries else 0
        if not isinstance(value, int) or value < 0:
            raise JournalError(
                f"{self.path}: the last line is damaged ({key} is {value!r}): repair it, or move the file "
                "away to start anew"
            )
        return value

    def read(self, read: Callable[[dict[str, Any]], T], remedy: str = "choose another --output") -> list[T]:
        """Return the converted entries. read: raises KeyError, TypeError or ValueError for a damaged one.

        Raises JournalError.
        """
        try:
            return [read(entry) for entry in self.entries]
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(f"{self.path}: an entry is damaged ({error!r}): {remedy}") from None

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _check_kind(self, kind: bytes) -> None:
        """Raise JournalError unless the file begins as a header of this kind does."""
        start = self._file.read(len(kind)).strip(b"\0")
        if not kind.startswith(start):
            raise JournalError(
                f"{self.path} is not a journal of this command: move it away, or choose another name"
            )

    def _load(self, kind: bytes) -> list[dict[str, Any]]:
        """Return the complete lines. A truncated last line is ignored. If it is the only one, it must be the
        beginning of a header."""
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
        if not lines and cut.strip(b"\0") and not (cut.startswith(kind) or kind.startswith(cut)):
            raise JournalError(f"{self.path} is not a journal: move it away, or choose another name")
        return lines


def campaign_journal(
    path: Path, header: Mapping[str, Any], *, kind: str, others: str, restart: bool = False
) -> Journal:
    """Open or create the journal of a campaign, whose games must have the dependencies of the new ones.

    header: of a new journal, with its kind as `journal` and the dependencies as `identity`. It replaces that
    of a journal without entries, as the user may have corrected the settings. kind: its
    games, for messages. others: message about different dependencies. restart: discard existing entries.
    Raises JournalError.
    """
    # The long identity comes last.
    header = {"journal": header["journal"], "format": FORMAT, "version": __version__, **header}
    journal = Journal(path, header, restart=restart)
    try:
        if journal.header.get("journal") != header["journal"] or journal.header.get("format") != FORMAT:
            raise JournalError(f"{path} is not a journal of {kind}: choose another --output")
        if not journal.entries:
            journal.close()
            journal = Journal(path, header, restart=True)
        changed = differences(journal.header.get("identity", {}), header["identity"])
        if changed:
            lines = "\n  ".join(changed)
            raise JournalError(f"{others}. What differs:\n  {lines}")
    except BaseException:
        journal.close()
        raise
    return journal


def _line(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line of the file. Undecodable bytes of a command line survive a round trip."""
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"

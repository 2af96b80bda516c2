# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of crashes caused by a GPU's driver or library, so that a later start excludes it.

A driver answers an illegal access with abort(), which no exception handler catches. So a process writes its
use of a device to a file (`OpeningAttempt`), and faulthandler adds the fatal signal. A later start reads
the files of ended processes. A file without a signal is deleted: SIGKILL, SIGTERM and out of memory do not
incriminate the device. Devices open concurrently, so a crash can have several suspects. The next start then
opens one at a time.

The files are in the user's cache folder. If that is not writable, they are in a temporary folder that the
parent process names in WAVEFRONT_CRASHES.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from protocol.common.folders import cache_folder
from protocol.common.processes import CRASHES_VARIABLE

log = logging.getLogger(__name__)

DAY_S = 24 * 3600.0
"""Two crashes within this time exclude a device that passed its self-check; during opening, one is enough."""

RETRY = "to try it again: `wavefront-evaluator devices --retry-gpu`"

MOST_FILES = 200
MOST_BYTES = 1 << 20
"""Maximum bytes that are read of a file."""

_SIGNALS = {
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
}
"""faulthandler's text for each signal that it handles."""

_FATAL = "Fatal Python error: "

_WINDOWS = "Windows fatal exception: "
"""faulthandler's line for a fault on Windows. The program may handle it and continue, so it ends the process
only if no further line of this module follows."""


class Phase(StrEnum):
    """Phase of a process's use of a device."""

    OPENING = "opened"
    TRYING = "tried"
    TUNING = "tuned"
    USING = "used"


@dataclass(frozen=True, slots=True)
class Crash:
    """A process that was ended by a signal. when: seconds since 1970. signal: name."""

    subject: str
    phase: Phase
    when: float
    signal: str

    def __str__(self) -> str:
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.when))
        return f"it ended the process by {self.signal} while it was {self.phase}, on {date}"


class OpeningAttempt:
    """This process's use of one subject. It ends with `end` or with the process."""

    def __init__(self, subject: str, phase: Phase) -> None:
        """subject: what a crash is attributed to: a device or library with its versions."""
        self._subject = subject
        self._id = next(_ids)
        self._alone = phase is Phase.OPENING and _recording and bool(crashes())
        if self._alone:
            _opening.acquire()
        _write({"id": self._id, "subject": subject, "phase": phase, "at": time.time()})

    def enter(self, phase: Phase) -> None:
        """Record the start of the next phase."""
        self._opened()
        _write({"id": self._id, "subject": self._subject, "phase": phase, "at": time.time()})

    def end(self) -> None:
        """Record the end of the use. Idempotent."""
        self._opened()
        _write({"id": self._id, "subject": self._subject, "phase": "", "at": time.time()})

    def _opened(self) -> None:
        if self._alone:
            self._alone = False
            _opening.release()


@contextlib.contextmanager
def attempt(subject: str, phase: Phase) -> Iterator[None]:
    """Context manager for an attempt."""
    made = OpeningAttempt(subject, phase)
    try:
        yield
    finally:
        made.end()


def record_crashes() -> None:
    """Make this process record its attempts. For programs, not for library use."""
    global _recording
    _recording = True


def records() -> bool:
    """Return True if this process records its attempts."""
    return _recording


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Context manager in which nothing is excluded: a report must cover failing devices."""
    global _ignoring
    before, _ignoring = _ignoring, True
    try:
        yield
    finally:
        _ignoring = before


def excluded(subject: str) -> Crash | None:
    """Return the crash that excludes a subject; None if it may be used."""
    if _ignoring:
        return None
    found = sorted((each for each in crashes() if each.subject == subject), key=lambda each: each.when)
    opening = [each for each in found if each.phase in (Phase.OPENING, Phase.TRYING)]
    if opening:
        return opening[-1]
    for first, last in itertools.pairwise(found):
        if last.when - first.when <= DAY_S:
            return found[-1]
    return None


def add(subject: str, phase: Phase, signal: str) -> None:
    """Record the crash of a child process, on behalf of its parent."""
    where = folder()
    if where is None:
        _remembered.append(Crash(subject, phase, time.time(), signal))
        return
    text = next(name for name, known in _SIGNALS.items() if known == signal)
    line = json.dumps({"id": 0, "subject": subject, "phase": phase, "at": time.time()})
    with contextlib.suppress(OSError):
        handle, path = tempfile.mkstemp(".log", "child-", where)
        with os.fdopen(handle, "w") as file:
            file.write(f"{line}\n{_FATAL}{text}\n")
        log.debug("recorded %s", path)


def crashes() -> list[Crash]:
    """Return all recorded crashes of ended processes."""
    where = folder()
    if where is None:
        return list(_remembered)
    found = list(_remembered)
    with contextlib.suppress(OSError):
        files = sorted(where.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
        for index, path in enumerate(files):
            if _is_alive(path):
                continue
            of_file = _read(path)
            found += of_file
            if not of_file or index >= MOST_FILES:
                path.unlink(missing_ok=True)
    return found


def forget() -> None:
    """Delete the records, so that all devices are tried again."""
    _remembered.clear()
    where = folder()
    for path in where.glob("*.log") if where is not None else ():
        if not _is_alive(path):
            path.unlink(missing_ok=True)


# -- the files -------------------------------------------------------------------------------------------

_ids = itertools.count(1)
_lock = threading.Lock()
_opening = threading.Lock()
"""Held while a device opens, once there has been a crash."""
_recording = False
_ignoring = False
_file: Any = None
_remembered: list[Crash] = []
"""Crashes of this process's children, if there is no folder."""


def folder() -> Path | None:
    """Return the folder of the records; None if none is writable."""
    cache, given = cache_folder(), os.environ.get(CRASHES_VARIABLE)
    for path in (cache and cache / "crashes", given and Path(given)):
        if not path:
            continue
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            if os.access(path, os.W_OK | os.X_OK):
                return path
    return None


def _write(line: dict[str, Any]) -> None:
    global _file
    if not _recording:
        return
    with _lock, contextlib.suppress(OSError):
        if _file is None:
            where = folder()
            if where is None:
                return
            import psutil

            name = f"{os.getpid()}-{round(psutil.Process().create_time() * 100)}.log"
            _file = (where / name).open("ab", buffering=0)
            # To dump running threads may crash the handler itself, and hide the signal (9 of 150 aborts).
            faulthandler.enable(_file, all_threads=False)
        _file.write(json.dumps(line).encode() + b"\n")


def _is_alive(path: Path) -> bool:
    """Return True if the writer of a file still runs. Process ids are reused; start times are not."""
    import psutil

    number, _, started = path.stem.partition("-")
    try:
        return round(psutil.Process(int(number)).create_time() * 100) == int(started)
    except (ValueError, psutil.Error):
        return False


def _read(path: Path) -> list[Crash]:
    """Return the crashes recorded in a file: the attempts in progress when the signal came."""
    try:
        with path.open("rb") as file:
            lines = file.read(MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    current: dict[int, dict[str, Any]] = {}
    last_fault = ""
    for line in lines:
        if line.startswith(_WINDOWS):
            last_fault = line.removeprefix(_WINDOWS).strip()
        if line.startswith(_FATAL):
            signal = _SIGNALS.get(line.removeprefix(_FATAL).strip())
            return [] if signal is None else _blamed(list(current.values()), signal)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            last_fault = ""
            if entry["phase"]:
                current[entry["id"]] = {**entry, "phase": Phase(entry["phase"]), "at": float(entry["at"])}
            else:
                current.pop(entry["id"], None)
    return _blamed(list(current.values()), last_fault) if last_fault else []


def _blamed(entries: list[dict[str, Any]], signal: str) -> list[Crash]:
    """Return the likeliest crash: an attempt at opening or trying, rather than one in use. Several devices
    that were being opened are blamed like devices in use, because all but one may be innocent."""
    suspects = [entry for entry in entries if entry["phase"] in (Phase.TRYING, Phase.OPENING)]
    if len({entry["subject"] for entry in suspects if entry["phase"] is Phase.OPENING}) > 1:
        return [Crash(str(each["subject"]), Phase.USING, each["at"], signal) for each in suspects]
    for phases in ((Phase.TRYING,), (Phase.OPENING,), (Phase.TUNING, Phase.USING)):
        chosen = [entry for entry in entries if entry["phase"] in phases]
        if chosen:
            return [Crash(str(each["subject"]), each["phase"], each["at"], signal) for each in chosen]
    return []

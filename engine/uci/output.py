# SPDX-License-Identifier: GPL-3.0-or-later
"""Standard output, reserved for UCI."""

from __future__ import annotations

import errno
import os
import sys
import threading
from time import strftime

from engine.uci.parse import shown


class Output:
    """Standard output for UCI only. Thread-safe.

    The constructor redirects file descriptor 1 and `sys.stdout` to standard error. So a stray print in Python
    or in a C library cannot break the protocol.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        for number in (1, 2):
            try:
                os.fstat(number)
            except OSError:  # Some GUIs start the engine without it: no other file may get its number.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                if nowhere != number:
                    os.dup2(nowhere, number)
                    os.close(nowhere)
        self._descriptor = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._log_path = ""
        self.broken = False

    def log_to(self, path: str) -> None:
        """Append all further input and output to a file; an empty path ends that. Raises OSError, also for a
        file that is not such a log."""
        if path:
            if os.path.isfile(path):  # noqa: PTH113 - as below.
                with open(path, "rb") as file:  # noqa: PTH123
                    start = file.read(21)
                if start and not (start[4:5] == b"-" and start[19:20] == b" " and start[20:] in b"<>-"):
                    raise FileExistsError(errno.EEXIST, "it exists and is not a log of Wavefront", path)
            with open(path, "a", encoding="utf-8"):  # noqa: PTH123 - pathlib costs more than uciok allows.
                pass
        self._log_path = path

    def heard(self, text: str) -> None:
        """Log a line of input."""
        if self._log_path:
            self._append(">", text)

    def log(self, text: str) -> None:
        """Log lines that are not sent."""
        if self._log_path:
            self._append("-", text)

    def send(self, text: str) -> None:
        """Write one or more lines. If the reader is gone, set `broken` instead of raising an error."""
        data = memoryview((text + "\n").encode("utf-8", "replace"))
        with self._lock:
            if self._log_path:
                self._append("<", text)
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                self.broken = True

    def info_string(self, text: str) -> None:
        """Send `info string …` on one line."""
        self.send("info string " + shown(text, 400))

    def _append(self, mark: str, text: str) -> None:
        try:
            with open(self._log_path, "a", encoding="utf-8") as file:  # noqa: PTH123 - as above.
                for line in text.splitlines():
                    file.write(f"{strftime('%F %T')} {mark} {shown(line, 100_000)}\n")
        except OSError:
            self._log_path = ""

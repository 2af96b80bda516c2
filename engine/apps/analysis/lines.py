# SPDX-License-Identifier: GPL-3.0-or-later
"""Transport by lines: queries on standard input, answers on standard output."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import BinaryIO

from engine.apps.analysis.scheduler import QueryScheduler


class LineClient:
    """The program at the other end of a pipe: a Client. Its own thread writes the answers, so that a slow
    reader delays only its own positions.

    finished: set at the end of the output. broken: True if it ended because the reader is gone.
    """

    def __init__(
        self, output: BinaryIO, most_unread_bytes: int, resume: Callable[[LineClient], None]
    ) -> None:
        """resume: called when the client is no longer congested."""
        self.owner = ""
        self.finished = threading.Event()
        self.broken = False
        self._output = output
        self._most = most_unread_bytes // 2
        self._resume = resume
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unread = 0
        threading.Thread(target=self._write, name="analysis-output", daemon=True).start()

    def send(self, answer: bytes) -> None:
        line = answer + b"\n"
        with self._lock:
            self._unread += len(line)
        self._lines.put(line)

    @property
    def congested(self) -> bool:
        return self._unread > self._most

    def done(self) -> None:
        self._lines.put(None)

    def _write(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                self._output.write(line)
                self._output.flush()
                with self._lock:
                    congested = self._unread > self._most
                    self._unread -= len(line)
                    relieved = congested and self._unread <= self._most
                if relieved:
                    self._resume(self)
        except (OSError, ValueError):  # The reader is gone, or the stream was closed.
            self.broken = True
        self.finished.set()


LINES_READ_AHEAD = 64
"""Maximum unread lines in the scheduler's inbox."""


def read_lines(
    scheduler: QueryScheduler, client: LineClient, source: BinaryIO, *, at_once: bool = False
) -> None:
    """Pass the lines of a stream to the scheduler until its end. Empty lines are ignored.

    at_once: terminate all positions at the end of input instead of finishing them.
    """
    most = scheduler.settings.max_message_bytes
    slots = threading.Semaphore(LINES_READ_AHEAD)
    while line := source.readline(most + 2):
        message = line.rstrip(b"\r\n")
        if len(message) > most:
            scheduler.refuse(client, f"the line is longer than {most:,} bytes")
            while line and not line.endswith(b"\n"):
                line = source.readline(1 << 16)
        elif message.strip():
            slots.acquire()
            scheduler.receive(client, message, slots.release)
    scheduler.end(client, at_once=at_once)

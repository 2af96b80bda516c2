# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes long at a start, reported to those who wait.

Anything may announce what it is doing; a program that somebody waits for shows it (`serve --embedded` passes
it on to the engine, which tells the GUI). Where nobody listens it goes to the log as any other message does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("evaluator.progress")

EVERY_S = 2.0
"""Seconds between two announcements that a listener gets; those in between are skipped."""


def announce(text: str) -> None:
    """Announce what is being done, in words for the user. Any thread may call this."""
    log.info("%s", text)


def warn(text: str) -> None:
    """Tell the user something that must not be lost, in words. Any thread may call this."""
    log.warning("%s", text)


class Listener(logging.Handler):
    """Passes announcements on, at most one in EVERY_S seconds; a shorter start announces nothing. Warnings
    are always passed on."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._report = report
        self._next = time.monotonic() + EVERY_S

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if record.levelno >= logging.WARNING or now >= self._next:
            self._next = now + EVERY_S
            self._report(record.getMessage())


def listen(report: Callable[[str], None]) -> None:
    """Have `report` called with the announcements, whatever the level of the log."""
    log.propagate = log.isEnabledFor(logging.INFO)  # else the log's own handlers would see them, too
    log.setLevel(logging.INFO)
    log.addHandler(Listener(report))

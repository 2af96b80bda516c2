# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress messages of a slow start.

Any module may announce what it does. `serve --embedded` forwards the messages to the engine, which shows them
in the GUI. Without a listener they are ordinary log messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("evaluator.backends.common.progress")

EVERY_S = 2.0
"""Minimum interval between announcements to a listener; those in between are skipped."""


def announce(text: str) -> None:
    """Announce a step, in words for the user. Any thread may call this."""
    log.info("%s", text)


def warn(text: str) -> None:
    """Warn the user; a warning is never skipped. Any thread may call this."""
    log.warning("%s", text)


class AnnouncementHandler(logging.Handler):
    """Forwards announcements, at most one per EVERY_S seconds and none in the first EVERY_S. Warnings are
    always forwarded."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._report = report
        self._next = time.perf_counter() + EVERY_S

    def emit(self, record: logging.LogRecord) -> None:
        now = time.perf_counter()
        if record.levelno >= logging.WARNING or now >= self._next:
            self._next = now + EVERY_S
            self._report(record.getMessage())


def listen(report: Callable[[str], None]) -> None:
    """Call `report` with each announcement, independent of the log level."""
    log.propagate = log.isEnabledFor(logging.INFO)  # else INFO messages would reach the log's handlers
    log.setLevel(logging.INFO)
    log.addHandler(AnnouncementHandler(report))

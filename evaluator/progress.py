"""What takes long at a start, told to whoever waits for it.

Anything may announce what it is doing; a program that somebody waits for shows it (`serve --embedded` passes
it on to the engine, which tells the GUI). Where nobody listens it goes to the log as any other message does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("evaluator.progress")

EVERY_S = 2.0
"""Whoever listens hears no more than one announcement in so many seconds."""


def announce(text: str) -> None:
    """Say what is being done, in words for the user. From any thread."""
    log.info("%s", text)


class Listener(logging.Handler):
    """Passes announcements on, the first one after EVERY_S: a start that is over by then needs none."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell
        self._next = time.monotonic() + EVERY_S

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._tell(record.getMessage())


def listen(tell: Callable[[str], None]) -> None:
    """Let `tell` hear the announcements, whatever the level of the log."""
    log.propagate = log.isEnabledFor(logging.INFO)  # else the log's own handlers would see them, too
    log.setLevel(logging.INFO)
    log.addHandler(Listener(tell))

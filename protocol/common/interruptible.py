# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches of a command that Ctrl-C stops without losing their result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.1


def interruptible(search: Callable[[], T], stop: Callable[[], None]) -> tuple[T, bool]:
    """Run a search in another thread, and return its result and whether it was interrupted.

    stop: called after an interrupt until the search ends, which may not have begun at the first call.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    # Not `join`: in Python 3.11 an interrupted one takes the thread for ended.
    ended = threading.Event()

    def work() -> None:
        try:
            results.append(search())
        except BaseException as error:  # Raised again in the caller's thread.
            failures.append(error)
        finally:
            ended.set()

    interrupted = False
    threading.Thread(target=work, name="search").start()
    try:
        while not ended.wait(POLL_SECONDS):
            pass
    except KeyboardInterrupt:
        interrupted = True
        while not ended.is_set():
            stop()
            ended.wait(POLL_SECONDS)
    if failures:
        raise failures[0]
    return results[0], interrupted

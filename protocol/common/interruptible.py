# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches of a command that Ctrl-C stops without losing their result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from protocol.common.processes import ending_signals

T = TypeVar("T")

POLL_SECONDS = 0.1


def interruptible(search: Callable[[], T], stop: Callable[[], None]) -> tuple[T, bool]:
    """Run a search in another thread, and return its result and whether a signal interrupted it.

    stop: called after the signal until the search ends, which may not have begun at the first call.
    Only the main thread may call this.
    """
    result: Future[T] = Future()
    interrupted = threading.Event()

    def work() -> None:
        try:
            result.set_result(search())
        except BaseException as error:  # Raised again in the caller's thread.
            result.set_exception(error)

    # A KeyboardInterrupt while the thread starts would leave a search that nobody stops.
    handlers = {each: handler for each in ending_signals() if callable(handler := signal.getsignal(each))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: interrupted.set())
        threading.Thread(target=work, name="search").start()
        while not wait([result], POLL_SECONDS).done:
            if interrupted.is_set():
                stop()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return result.result(), interrupted.is_set()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives memory back to the system that the C library keeps after it was freed.

What is freed between blocks in use stays with the process, and a burst leaves much of it: three thousand
connections 100 MB, of which glibc gives back nothing by itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 10.0


@contextmanager
def trimmed(every_s: float = EVERY_S) -> Iterator[None]:
    """Give back what is free every few seconds, while the context lasts. Does nothing where the C library is
    not glibc."""
    trim = _trim()
    if trim is None:
        yield
        return
    ends = threading.Event()

    def work() -> None:
        while not ends.wait(every_s):
            trim(0)  # without the interpreter's lock

    thread = threading.Thread(target=work, name="heap", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _trim() -> Callable[[int], int] | None:
    """glibc's malloc_trim."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # TypeError: Windows has no library without a name
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim

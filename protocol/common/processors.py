# SPDX-License-Identifier: GPL-3.0-or-later
"""The usable CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def usable_processors() -> int:
    """Return the number of CPUs that this process may use; each hardware thread counts as one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def share_of_processors(number: int, shares: int) -> Iterator[None]:
    """Let this thread, and the processes that it starts meanwhile, use one of N equal ranges of its CPUs.

    Has no effect with fewer CPUs than shares, or where the system cannot bind processes.
    """
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(own) < shares:
        yield
        return
    os.sched_setaffinity(0, own[len(own) * number // shares : len(own) * (number + 1) // shares])
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)

"""Threads that Linux runs soon after they wake, also where other programs want the same cores.

Since 6.12 a thread may ask for a short time slice. It gets no larger share of a core, but the share comes in
smaller pieces, and when it wakes it need not wait until the others have used up theirs.
"""

from __future__ import annotations

import os
import platform
import struct
import sys

SLICE_NS = 100_000
"""The least that Linux takes."""

_NUMBERS = {"x86_64": 314, "aarch64": 274}
"""Of the system call sched_setattr, which Python does not have."""

_ATTRIBUTES = struct.Struct("=IIQiIQQQII")
"""struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period, clamps."""

_RESET_ON_FORK = 1
"""What the thread starts has slices of the usual length: threads that compute are better off with these."""


def take_short_slices(thread: int = 0) -> bool:
    """Ask for short slices for a thread, by its native id (0: the caller's own); False if that has no sense
    here.

    For threads that mostly sleep. A priority that the user has raised stays as it is, and so does a policy
    other than the usual one.
    """
    number = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return False
    try:
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        # Fork would reset a raised priority, too.
        if nice < 0 or os.sched_getscheduler(thread) & 0xFF != os.SCHED_OTHER:
            return False
        import ctypes

        wanted = _ATTRIBUTES.pack(
            _ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, SLICE_NS, 0, 0, 0, 0
        )
        return int(ctypes.CDLL(None).syscall(number, thread, wanted, 0)) == 0
    except OSError:  # The thread has ended, or a sandbox forbids it.
        return False

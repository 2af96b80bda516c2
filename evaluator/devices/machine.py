"""What other programs take of the machine: times that were measured meanwhile are doubted."""

from __future__ import annotations

import os
import time
from typing import TypeAlias

import psutil

MAX_OTHERS_SHARE = 0.25
"""The machine is busy while other programs take a larger share of its processors."""

READ_S = 1.0
"""Seconds between two readings of a service that runs."""

Reading: TypeAlias = tuple[float, float, float]
"""Seconds on the clock, and of the processors: of the whole machine, of this process."""


class OtherPrograms:
    """Whether other programs keep the machine busy, read once in READ_S. Its owner serialises access."""

    def __init__(self) -> None:
        self._last = reading()
        self._busy = False

    @property
    def busy(self) -> bool:
        """Whether they took more than MAX_OTHERS_SHARE of the processors between the last two readings."""
        if time.perf_counter() - self._last[0] >= READ_S:
            now = reading()
            self._busy = others_share(self._last, now) > MAX_OTHERS_SHARE
            self._last = now
        return self._busy


def reading() -> Reading:
    """Read the clock and the processors' times."""
    machine = psutil.cpu_times()
    busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
    return time.perf_counter(), busy, time.process_time()


def others_share(before: Reading, after: Reading) -> float:
    """Return the share of the machine that other processes took between two readings, 0 to 1.

    It is 0 for less than 0.1 s: the machine counts in hundredths of a second.
    """
    passed, busy, own = (later - earlier for earlier, later in zip(before, after, strict=True))
    return max(0.0, busy - own) / (passed * (os.cpu_count() or 1)) if passed >= 0.1 else 0.0

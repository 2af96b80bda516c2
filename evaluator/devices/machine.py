# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of other programs on this machine.

Times measured on a busy machine are provisional, and a process that waits for a processor does not count as
hanging.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TypeAlias

import psutil

MAX_OTHERS_SHARE = 0.25
"""Share of the processors used by other programs above which the machine is busy."""

Reading: TypeAlias = tuple[float, float, float]
"""Seconds of the clock, of the whole machine's processor time, and of this process's."""


class OtherPrograms:
    """Detects a busy machine. Its owner serialises access.

    busy: True if they used more than MAX_OTHERS_SHARE of the processors between the last two readings.
    """

    def __init__(self) -> None:
        self.busy = False
        self._last = reading()

    def read(self) -> None:
        """Read the load."""
        now = reading()
        self.busy = others_share(self._last, now) > MAX_OTHERS_SHARE
        self._last = now


def reading() -> Reading:
    """Read the clock and the processor times."""
    machine = psutil.cpu_times()
    busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
    return time.perf_counter(), busy, time.process_time()


def others_share(before: Reading, after: Reading) -> float:
    """Return the share of the machine that other processes took between two readings, 0 to 1.

    It is 0 for less than 0.1 s: the machine counts in hundredths of a second.
    """
    passed, busy, own = (later - earlier for earlier, later in zip(before, after, strict=True))
    return max(0.0, busy - own) / (passed * (os.cpu_count() or 1)) if passed >= 0.1 else 0.0


class ProcessorWaits:
    """Measures how long this process waits for a processor. Its owner serialises access.

    A computing thread either runs or waits for a processor. A thread in a hanging driver does neither.
    threads: folder with a folder per thread, as on Linux.
    """

    def __init__(self, threads: Path = Path("/proc/self/task")) -> None:
        self._threads = threads
        self._waited_ns = _waits_ns(threads)
        self._reading = reading()

    def lost_ms(self) -> float:
        """Return the longest wait of any thread since the last call, in milliseconds.

        Systems without this statistic count the time without the processor while all processors were busy.
        """
        before, self._reading = self._reading, reading()
        if self._waited_ns is None:
            return _lost_ms(before, self._reading)
        waited_ns = _waits_ns(self._threads) or {}
        known, self._waited_ns = self._waited_ns, waited_ns
        return max((waited - known.get(thread, 0) for thread, waited in waited_ns.items()), default=0) / 1e6


SATURATED = 0.95
"""Share of processor time from which all processors count as busy."""


def _lost_ms(before: Reading, after: Reading) -> float:
    passed, busy, own = (later - earlier for earlier, later in zip(before, after, strict=True))
    saturated = busy >= SATURATED * passed * (os.cpu_count() or 1)
    return 1000 * max(0.0, passed - own) if saturated else 0.0


def _waits_ns(threads: Path) -> dict[str, int] | None:
    """Return the nanoseconds that each thread has waited for a processor; None if unsupported."""
    waits = {}
    try:
        for thread in threads.iterdir():
            try:
                waits[thread.name] = int((thread / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # the thread has ended
                continue
    except (OSError, ValueError, IndexError):
        return None
    return waits or None

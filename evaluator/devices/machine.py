# SPDX-License-Identifier: GPL-3.0-or-later
"""What other programs take of the machine.

Times that were measured on a busy machine are doubted, and a process that waits for a processor is not taken
for one that hangs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
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


class ProcessorWaits:
    """How long this process has waited for a processor since the last call. Its owner serialises access.

    A thread that computes either runs or waits for a processor. A thread inside a driver that hangs does
    neither. threads: folder with a folder for each thread, as Linux has it.
    """

    def __init__(self, threads: Path = Path("/proc/self/task")) -> None:
        self._threads = threads
        self._waited_ns = _waits_ns(threads)
        self._reading = reading()

    def lost_ms(self) -> float:
        """Milliseconds that the thread that waited longest has waited since the last call.

        Systems that do not count this count the time without the processor while all processors were busy.
        """
        before, self._reading = self._reading, reading()
        if self._waited_ns is None:
            return _lost_ms(before, self._reading)
        waited_ns = _waits_ns(self._threads) or {}
        known, self._waited_ns = self._waited_ns, waited_ns
        return max((waited - known.get(thread, 0) for thread, waited in waited_ns.items()), default=0) / 1e6


SATURATED = 0.95
"""All processors count as busy from this share of their time on."""


def _lost_ms(before: Reading, after: Reading) -> float:
    passed, busy, own = (later - earlier for earlier, later in zip(before, after, strict=True))
    saturated = busy >= SATURATED * passed * (os.cpu_count() or 1)
    return 1000 * max(0.0, passed - own) if saturated else 0.0


def _waits_ns(threads: Path) -> dict[str, int] | None:
    """Nanoseconds that each thread has waited for a processor; None where the system does not count them."""
    waits = {}
    try:
        for thread in threads.iterdir():
            try:
                waits[thread.name] = int((thread / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # The thread ended meanwhile.
                continue
    except (OSError, ValueError, IndexError):
        return None
    return waits or None

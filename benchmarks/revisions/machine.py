# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """processor: its model. cores: usable by this process. system: name and version. python: version."""

    processor: str
    cores: int
    system: str
    python: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, {self.system}, Python {self.python}"


def this_machine() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    system = f"{platform.system()} {platform.release()}"
    return Machine(_processor(), cores, system, platform.python_version())


def _processor() -> str:
    """Return the CPU's model from Linux's /proc/cpuinfo, or else from the platform module."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

# SPDX-License-Identifier: GPL-3.0-or-later
"""What figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """processor: its model. cores: those that this process may use. system: name and version. python: the
    interpreter's version."""

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
    """Linux names it in a file; elsewhere the platform does, or only its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

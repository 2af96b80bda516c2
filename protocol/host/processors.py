# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of usable CPUs."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Return the number of CPUs that this process may use; each hardware thread counts as one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

# SPDX-License-Identifier: GPL-3.0-or-later
"""The processors of this machine."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """How many processors this process may use; a second thread of a core counts as one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

# SPDX-License-Identifier: GPL-3.0-or-later
"""The default number of CPU threads."""

from __future__ import annotations

import psutil

from protocol.common.processors import usable_processors


def default_threads() -> int:
    """Return the physical cores that this process may use; a second thread per core slows matrix products."""
    allowed = usable_processors()
    physical = psutil.cpu_count(logical=False) or allowed
    return max(1, min(allowed, physical))

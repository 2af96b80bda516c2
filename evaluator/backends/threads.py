# SPDX-License-Identifier: GPL-3.0-or-later
"""How many CPU threads to use when the user does not say."""

from __future__ import annotations

import psutil

from protocol.host.processors import usable_processors


def default_threads() -> int:
    """One per physical core that this process may use; a second thread on a core only slows matrix
    products."""
    allowed = usable_processors()
    physical = psutil.cpu_count(logical=False) or allowed
    return max(1, min(allowed, physical))

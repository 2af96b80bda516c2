"""How many CPU threads to use when the user does not say."""

from __future__ import annotations

import os

import psutil


def default_threads() -> int:
    """One per physical core that this process may use; a second thread on a core only slows matrix
    products."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or allowed
    return max(1, min(allowed, physical))

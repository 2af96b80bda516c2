# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that this process may use: of the machine, or of its container."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIPS = Path("/proc/self/cgroup")


@cache
def process_memory() -> int:
    """Return the bytes of memory that this process may use, as found at the first call.

    The smallest of the machine's memory and the limits of the memory cgroups around the process.
    """
    import psutil

    return min([int(psutil.virtual_memory().total), *_limits_of_cgroups()])


def _limits_of_cgroups() -> list[int]:
    """Return the limits in bytes of the process's memory cgroups, of version 1 or 2, up to the root."""
    try:
        memberships = MEMBERSHIPS.read_text("utf-8").splitlines()
    except OSError:  # not Linux
        return []
    limits = []
    for membership in memberships:
        _number, controllers, path = membership.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, file = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        group = root / path.strip("/")
        # A container sees its own group as the root, under another path.
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                limits += _limit_in(folder / file)
    return limits


def _limit_in(file: Path) -> list[int]:
    """Return the limit in a file; nothing for no file, and for `max`."""
    try:
        return [int(file.read_text("ascii"))]
    except (OSError, ValueError):
        return []

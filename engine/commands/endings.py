# SPDX-License-Identifier: GPL-3.0-or-later
"""How a command that plays games ends: what it says on standard error, and its exit status."""

from __future__ import annotations

import sys


def exit_status(command: str, games: str, *, failure: str, interrupted: bool) -> int:
    """0 for what went well, 1 with the failure, 130 after an interruption. games: what goes on with the same
    command then."""
    if failure:
        print(f"wavefront {command}: {failure}", file=sys.stderr)
        return 1
    if interrupted:
        print(f"interrupted; the same command goes on with {games}", file=sys.stderr)
        return 130
    return 0

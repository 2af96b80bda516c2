# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a command that plays games: message on standard error, and exit status."""

from __future__ import annotations

import sys


def exit_status(command: str, games: str, *, failure: str, interrupted: bool) -> int:
    """Return 0 after success, 1 after a failure, 130 after an interruption. games: what the same command then
    continues."""
    if failure:
        print(f"wavefront {command}: {failure}", file=sys.stderr)
        return 1
    if interrupted:
        print(f"interrupted; the same command goes on with {games}", file=sys.stderr)
        return 130
    return 0

# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by commands with --plot."""

from __future__ import annotations

import sys
from collections.abc import Callable

from protocol.host.extras import install


def plotted(draw: Callable[[], None]) -> int:
    """Draw and return the exit status; on failure print the reason and return 1."""
    try:
        draw()
    except ImportError as error:
        print(f"error: cannot plot: {error}: {install('plot')}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"error: cannot plot: {error}", file=sys.stderr)
    else:
        return 0
    return 1

# SPDX-License-Identifier: GPL-3.0-or-later
"""What commands with --plot share."""

from __future__ import annotations

import sys
from collections.abc import Callable

from protocol.host.extras import install


def plotted(draw: Callable[[], None]) -> int:
    """Draw; the exit status, 1 with the reason where that cannot be."""
    try:
        draw()
    except ImportError as error:
        print(f"error: cannot plot: {error}: {install('plot')}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"error: cannot plot: {error}", file=sys.stderr)
    else:
        return 0
    return 1

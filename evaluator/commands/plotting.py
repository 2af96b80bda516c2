# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by commands with --plot."""

from __future__ import annotations

import sys
from collections.abc import Callable

from protocol.host.extras import install
from protocol.host.outputs import guard_output, is_figure


def guard_plot(path: str | None, read: str | None, *, overwrite: bool) -> None:
    """Raise OutputError if a plot would replace another file. read: a file that the command reads."""
    if path:
        guard_output(path, [read] if read else [], overwrite=overwrite, own=is_figure)


def plotted(draw: Callable[[], None]) -> int:
    """Draw and return the exit status; on failure print the reason and return 1."""
    try:
        draw()
    except ImportError as error:
        print(f"error: cannot plot: {error}: {install('plot')}", file=sys.stderr)
    except OSError as error:
        print(f"error: cannot plot: {error.filename}: {error.strerror}", file=sys.stderr)
    except ValueError as error:
        print(f"error: cannot plot: {error}", file=sys.stderr)
    else:
        return 0
    return 1

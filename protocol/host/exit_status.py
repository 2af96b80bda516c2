"""How a process ended, in words."""

from __future__ import annotations

import signal
from contextlib import suppress


def how_it_ended(status: int) -> str:
    """A predicate to "the program": status is that of `subprocess`, negative for a signal."""
    if status >= 0:
        return f"ended with exit code {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"

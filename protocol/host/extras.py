# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about packages that are not installed."""

from __future__ import annotations


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '.[{extra}]' in the checkout"


def missing(error: ImportError) -> str:
    """Return the message for a failed import, with the remedy."""
    if error.name is None:  # from protocol/host/native.py, whose message includes the remedy
        return str(error)
    return f"{error}; install the packages that Wavefront needs, with 'pip install .' in the checkout"

# SPDX-License-Identifier: GPL-3.0-or-later
"""What is not installed: packages of an extra, or those that the program needs."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra, for messages."""
    return f"pip install '.[{extra}]' in the checkout"


def missing(error: ImportError) -> str:
    """What an import failed with and what to do about it, for messages."""
    if error.name is None:  # ours, which says what to do (protocol/host/native.py)
        return str(error)
    return f"{error}; install the packages that Wavefront needs, with 'pip install .' in the checkout"

# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about packages that are not installed."""

from __future__ import annotations

import os
import sys

from protocol.common.version import __version__


def install(extra: str) -> str:
    """Return what installs an extra: a command, or for the Windows zip its second part."""
    if extra == "nvidia" and os.path.exists(os.path.join(sys.prefix, "..", "wavefront-evaluator.exe")):  # noqa: PTH110, PTH118
        return f"unpack wavefront-{__version__}-windows-x86_64-nvidia.zip over this folder"
    return f"pip install '.[{extra}]' in the checkout"


def missing(error: ImportError) -> str:
    """Return the message for a failed import, with the remedy."""
    if error.name is None:  # from protocol/common/native.py, whose message includes the remedy
        return str(error)
    return f"{error}; install the packages that Wavefront needs, with 'pip install .' in the checkout"

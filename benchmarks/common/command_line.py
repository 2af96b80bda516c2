# SPDX-License-Identifier: GPL-3.0-or-later
"""What the command lines of several benchmarks share: types of argparse, exit codes."""

from __future__ import annotations

import argparse

FAILED, INTERRUPTED = 2, 130
"""Exit codes."""


def positive(text: str) -> float:
    """A number above 0, for argparse."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def count(text: str) -> int:
    """A whole number above 0, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value

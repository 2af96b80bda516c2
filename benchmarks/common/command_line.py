# SPDX-License-Identifier: GPL-3.0-or-later
"""Types of argparse and exit codes shared by several benchmarks."""

from __future__ import annotations

import argparse

FAILED, INTERRUPTED = 2, 130
"""Exit codes."""


def positive(text: str) -> float:
    """Parse a number above 0, for argparse."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def count(text: str) -> int:
    """Parse an integer above 0, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value

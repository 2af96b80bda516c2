# SPDX-License-Identifier: GPL-3.0-or-later
"""How often tests with random input repeat: in CI, which sets WAVEFRONT_ALL_ROUNDS, ten times as often."""

import os


def rounds(count: int, least: int = 1) -> int:
    """Return count in CI, elsewhere a tenth of it, but not less than `least`."""
    return count if os.environ.get("WAVEFRONT_ALL_ROUNDS") else max(least, count // 10)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of the gpu backend's option `tuning`: when matrix products are measured."""

from __future__ import annotations

from enum import StrEnum


class Tuning(StrEnum):
    """BEFORE: before a network opens, which takes half a minute for a large one. BEHIND: while it serves by
    guesses (quick.py). OFF: never; unknown products stay guessed."""

    BEFORE = "before"
    BEHIND = "behind"
    OFF = "off"

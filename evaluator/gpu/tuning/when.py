# SPDX-License-Identifier: GPL-3.0-or-later
"""When matrix products are measured, as the option `tuning` of the gpu backend says."""

from __future__ import annotations

from enum import StrEnum


class Tuning(StrEnum):
    """BEFORE a network opens, which takes half a minute for a large one; BEHIND it, while it is used already
    by guesses (quick.py) and nobody waits; OFF: what is not known stays guessed."""

    BEFORE = "before"
    BEHIND = "behind"
    OFF = "off"

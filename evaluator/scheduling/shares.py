# SPDX-License-Identifier: GPL-3.0-or-later
"""Guaranteed shares of device time for the lower classes of a network.

While requests of a class wait, it earns GUARANTEED_SHARE of the time that other classes use. A class that is
owed time goes first, and the time it then uses is deducted. So a deep queue takes no more than this share
from play, and endless play leaves the others this share.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.messages import PRIORITIES

GUARANTEED_SHARE = 0.05
"""Minimum share of device time for analysis and for self-play, each while its requests wait."""

REMEMBERED_MS = 50.0
"""Maximum debt of a class that had the device to itself, unless its last batch was longer. It pays this back
before it is owed time again."""


class ClassShares:
    """Milliseconds of device time owed to each class; negative for a class in debt."""

    def __init__(self) -> None:
        self._owed_ms = [0.0] * len(PRIORITIES)

    def owed(self, rank: int) -> bool:
        """Return True if a class goes before the others. Always False for play, which is first anyway."""
        return rank > 0 and self._owed_ms[rank] > 0

    @property
    def any_owed(self) -> bool:
        """Return True if any class goes before the others."""
        return max(self._owed_ms[1:]) > 0

    def ran(self, batch_ms: float, class_ms: Sequence[float], waiting: Sequence[int]) -> None:
        """Account for a batch. batch_ms: its time. class_ms: time of each class of this network. waiting:
        queued positions of each class. A class without queued positions earns nothing, but pays back.
        """
        for rank, own_ms in enumerate(class_ms):
            before_ms = self._owed_ms[rank]
            after_ms = before_ms + GUARANTEED_SHARE * batch_ms - own_ms
            if after_ms > 0 and not waiting[rank]:
                after_ms = 0.0
            self._owed_ms[rank] = max(after_ms, min(before_ms, -own_ms, -REMEMBERED_MS))

# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lower classes of a network are guaranteed of its devices' time, however much play there is.

While requests of a class wait, it earns GUARANTEED_SHARE of the time that goes to others. A class that is
owed time goes before all others, and what it then takes is counted against it. So a queue of any depth takes
no more than this share from play, and play that never ends leaves the others this share.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.messages import PRIORITIES

GUARANTEED_SHARE = 0.05
"""Share of the devices' time that analysis and self-play each get at least while requests of theirs wait."""

REMEMBERED_MS = 50.0
"""A class that had the device to itself pays back this much of that time, or its last batch, before it is
owed anything again."""


class ClassShares:
    """The milliseconds of device time that each class is owed; negative for a class that has had its part."""

    def __init__(self) -> None:
        self._owed_ms = [0.0] * len(PRIORITIES)

    def owed(self, rank: int) -> bool:
        """Whether a class goes before the others. Play, which goes first as it is, never has to."""
        return rank > 0 and self._owed_ms[rank] > 0

    @property
    def any_owed(self) -> bool:
        """Whether any class goes before the others."""
        return max(self._owed_ms[1:]) > 0

    def ran(self, batch_ms: float, class_ms: Sequence[float], waiting: Sequence[int]) -> None:
        """Account for a batch: its milliseconds, those of each class of this network, and how many positions
        of each are queued. A class of which nothing waits earns nothing, but pays back.
        """
        for rank, own_ms in enumerate(class_ms):
            before_ms = self._owed_ms[rank]
            after_ms = before_ms + GUARANTEED_SHARE * batch_ms - own_ms
            if after_ms > 0 and not waiting[rank]:
                after_ms = 0.0
            self._owed_ms[rank] = max(after_ms, min(before_ms, -own_ms, -REMEMBERED_MS))

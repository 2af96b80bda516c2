# SPDX-License-Identifier: GPL-3.0-or-later
"""How long an evaluator will take for a request, by its curve and by what it took for the last ones."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.messages import best_rate

UNMEASURED = ((1, 2.0), (64, 10.0))
"""Stands for the curve of an evaluator that tells none, or one that cannot be."""

SHARE = 1 / 8
"""What the last request counts among those before."""

FORGET_SECONDS = 2.0
"""The time in which what was learned of a slow evaluator loses half of its weight while nobody asks it."""

LOWEST, HIGHEST = 0.05, 1000.0


class SpeedEstimate:
    """An evaluator's speed at one network, as a client of it sees it.

    What others ask of it shows in how much longer it takes than its curve says: in `slowness`, a factor.
    """

    def __init__(self, curve: Sequence[tuple[int, float]]) -> None:
        self._curve = curve if best_rate(curve) > 0 else UNMEASURED
        self._slowness = 1.0
        self._learned_at = 0.0

    @property
    def rate(self) -> float:
        """Positions per second that the curve promises."""
        return best_rate(self._curve)

    def slowness(self, now: float) -> float:
        """How many times as long it takes as its curve says. now: in seconds of a clock that never goes
        back."""
        if self._slowness <= 1:
            return self._slowness
        idle = max(0.0, now - self._learned_at)
        return float(1 + (self._slowness - 1) * 0.5 ** (idle / FORGET_SECONDS))

    def curve_ms(self, positions: int) -> float:
        """What the curve says of so many positions at a time."""
        for size, milliseconds in self._curve:
            if size >= positions:
                return milliseconds
        size, milliseconds = self._curve[-1]
        return milliseconds * positions / size

    def expected_ms(self, positions: int, before_ms: float) -> float:
        """What the curve says of a request that is sent now. before_ms: what those in flight take of the
        device."""
        return before_ms + self.curve_ms(positions)

    def share_ms(self, positions: int) -> float:
        """What so many positions take of a device that is busy."""
        return 1000 * positions / self.rate

    def learn(self, expected_ms: float, took_ms: float, now: float) -> None:
        """Take in what a request took, from when it was sent, and what was expected of it then."""
        known = self.slowness(now)
        self._slowness = min(HIGHEST, max(LOWEST, known + SHARE * (took_ms / max(1e-3, expected_ms) - known)))
        self._learned_at = now

    def refused(self, now: float) -> None:
        """Take in that it has more to do than it takes: others are better off with what there is."""
        self._slowness = min(HIGHEST, 2 * max(1.0, self.slowness(now)))
        self._learned_at = now

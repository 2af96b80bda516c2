# SPDX-License-Identifier: GPL-3.0-or-later
"""The expected latency of a request, from the evaluator's speed curve and its recent latencies."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.wire.messages import best_rate

UNMEASURED = ((1, 2.0), (64, 10.0))
"""Assumed curve (positions, ms) if an evaluator reports none or an impossible one."""

SHARE = 1 / 8
"""Weight of the last request in the mean."""

FORGET_SECONDS = 2.0
"""Half-life of the excess slowness of an evaluator that gets no requests."""

LOWEST, HIGHEST = 0.05, 1000.0


class SpeedEstimate:
    """An evaluator's speed at one network, as measured by a client.

    `slowness` is the factor by which requests take longer than the curve predicts, because of other clients.
    """

    def __init__(self, curve: Sequence[tuple[int, float]]) -> None:
        self._curve = curve if best_rate(curve) > 0 else UNMEASURED
        self._slowness = 1.0
        self._learned_at = 0.0

    @property
    def rate(self) -> float:
        """Positions per second according to the curve."""
        return best_rate(self._curve)

    def slowness(self, now: float) -> float:
        """Return the ratio of actual to predicted latency. now: seconds of a monotonic clock."""
        if self._slowness <= 1:
            return self._slowness
        idle = max(0.0, now - self._learned_at)
        return float(1 + (self._slowness - 1) * 0.5 ** (idle / FORGET_SECONDS))

    def curve_ms(self, positions: int) -> float:
        """Return the time of a request with N positions according to the curve."""
        for size, milliseconds in self._curve:
            if size >= positions:
                return milliseconds
        size, milliseconds = self._curve[-1]
        return milliseconds * positions / size

    def share_ms(self, positions: int) -> float:
        """Return the device time of N positions on a busy device."""
        return 1000 * positions / self.rate

    def learn(self, expected_ms: float, took_ms: float, now: float) -> None:
        """Record the latency of a request, and the one expected when it was sent."""
        known = self.slowness(now)
        self._slowness = min(HIGHEST, max(LOWEST, known + SHARE * (took_ms / max(1e-3, expected_ms) - known)))
        self._learned_at = now

    def refused(self, now: float) -> None:
        """Record a refusal for overload, which makes other evaluators preferable."""
        self._slowness = min(HIGHEST, 2 * max(1.0, self.slowness(now)))
        self._learned_at = now

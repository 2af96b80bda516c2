# SPDX-License-Identifier: GPL-3.0-or-later
"""Other batch policies for comparison in the simulation (simulation.py), and the interface of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from evaluator.scheduling.batching import BatchPolicy, LatencyTargets, LaunchNow, Pending, Wait
from evaluator.scheduling.latency import LatencyModel


class Policy(Protocol):
    """The interface of a batch policy in the simulation; BatchPolicy is one."""

    def arrived(self, client: int, positions: int, rank: int, now_ms: float) -> None: ...
    def replied(self, client: int, now_ms: float) -> None: ...
    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> LaunchNow | Wait: ...
    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None: ...


class TakeQueued:
    """Takes all queued positions up to max_batch as soon as the device is free."""

    def __init__(self, model: LatencyModel) -> None:
        self.max_batch = model.max_batch

    def arrived(self, client: int, positions: int, rank: int, now_ms: float) -> None:
        """Ignored by this policy."""

    def replied(self, client: int, now_ms: float) -> None:
        """Ignored by this policy."""

    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None:
        """Return None: a second batch starts at once."""
        return None

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> LaunchNow | Wait:
        return LaunchNow(min(self.max_batch, sum(request.positions for request in pending)))


class FixedBatch(TakeQueued):
    """Waits for a batch of the knee's size, or until the oldest request has waited as long as such a batch
    takes. Inference servers do this with a preferred batch size and a maximum delay."""

    def __init__(self, model: LatencyModel) -> None:
        super().__init__(model)
        self.size = model.knee
        self.timeout_ms = model.milliseconds(model.knee)

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> LaunchNow | Wait:
        total = sum(request.positions for request in pending)
        until = min(request.arrived_ms for request in pending) + self.timeout_ms
        if total < self.size and until > now_ms + 1e-9:
            return Wait(until)
        return LaunchNow(min(self.size, total))


class AdditiveIncrease(TakeQueued):
    """A batch limit that grows slightly after each batch within the play target, and is halved after each
    batch beyond it (AIMD; Crankshaw et al.: "Clipper", 2017)."""

    def __init__(self, model: LatencyModel) -> None:
        super().__init__(model)
        self.limit = 1.0
        self.step = 4.0
        self.target_ms = LatencyTargets().play
        self._launched = 0
        self._model = model

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> LaunchNow | Wait:
        if self._launched:
            if self._model.milliseconds(self._launched) > self.target_ms:
                self.limit = max(1.0, self.limit / 2)
            elif self._launched >= int(self.limit):
                self.limit = min(self.max_batch, self.limit + self.step)
        self._launched = min(int(self.limit), sum(request.positions for request in pending))
        return LaunchNow(self._launched)


POLICIES: dict[str, Callable[[LatencyModel], Policy]] = {
    "wavefront": BatchPolicy,
    "take-queued": TakeQueued,
    "fixed+timeout": FixedBatch,
    "aimd": AdditiveIncrease,
}
"""The service's policy and those for comparison, by name."""

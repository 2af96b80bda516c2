# SPDX-License-Identifier: GPL-3.0-or-later
"""Batch policies that ours is compared with in the simulation (simulation.py), and what it asks of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from evaluator.scheduling.batching import BatchPolicy, LatencyTargets, Launch, Pending, Wait
from evaluator.scheduling.latency import LatencyModel


class Policy(Protocol):
    """What the simulation asks of a batch policy; BatchPolicy is one."""

    def arrived(self, client: int, positions: int, rank: int, now_ms: float) -> None: ...
    def replied(self, client: int, now_ms: float) -> None: ...
    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait: ...
    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None: ...


class TakeQueued:
    """Takes whatever is queued, up to max_batch, as soon as the device is free."""

    def __init__(self, model: LatencyModel) -> None:
        self.max_batch = model.max_batch

    def arrived(self, client: int, positions: int, rank: int, now_ms: float) -> None:
        """This policy learns nothing from it."""

    def replied(self, client: int, now_ms: float) -> None:
        """This policy learns nothing from it."""

    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None:
        """This policy launches a second batch at once."""
        return None

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait:
        return Launch(min(self.max_batch, sum(request.positions for request in pending)))


class FixedBatch(TakeQueued):
    """Waits for a batch of the knee's size, or until the oldest request has waited for the time that such a
    batch takes; as in inference servers with a preferred batch size and a maximum delay."""

    def __init__(self, model: LatencyModel) -> None:
        super().__init__(model)
        self.size = model.knee
        self.timeout_ms = model.milliseconds(model.knee)

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait:
        total = sum(request.positions for request in pending)
        until = min(request.arrived_ms for request in pending) + self.timeout_ms
        if total < self.size and until > now_ms + 1e-9:
            return Wait(until)
        return Launch(min(self.size, total))


class AdditiveIncrease(TakeQueued):
    """A limit on the batch that grows by a little after every batch inside the play target and is halved
    after one beyond it (AIMD; Crankshaw et al.: "Clipper", 2017)."""

    def __init__(self, model: LatencyModel) -> None:
        super().__init__(model)
        self.limit = 1.0
        self.step = 4.0
        self.target_ms = LatencyTargets().play
        self._launched = 0
        self._model = model

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait:
        if self._launched:
            if self._model.milliseconds(self._launched) > self.target_ms:
                self.limit = max(1.0, self.limit / 2)
            elif self._launched >= int(self.limit):
                self.limit = min(self.max_batch, self.limit + self.step)
        self._launched = min(int(self.limit), sum(request.positions for request in pending))
        return Launch(self._launched)


POLICIES: dict[str, Callable[[LatencyModel], Policy]] = {
    "wavefront": BatchPolicy,
    "take-queued": TakeQueued,
    "fixed+timeout": FixedBatch,
    "aimd": AdditiveIncrease,
}
"""Ours, and those it is compared with."""

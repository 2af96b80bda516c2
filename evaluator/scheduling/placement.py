# SPDX-License-Identifier: GPL-3.0-or-later
"""Placement: which part of a queue a device takes if other devices could take it, too.

Pure, like the batch policy: the service, the tests and the simulation run the same code. It decides for one
device at a time, when that is or will soon be idle. It uses the expected end and the speed of the others:

1. No device takes more than its part if the whole queue were to end as early as possible. So a request is
   split over idle devices, but a single one is not if that would gain nothing.
2. A device leaves to others what they would end sooner, and takes what they cannot reach by then. So a slow
   idle device takes no play from a fast one that is free soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluator.scheduling.batching import LaunchNow, Pending, Wait
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.scheduler import Scheduler
from protocol.wire.messages import Curve

STEPS = 10
"""Bisection steps for a queue's end: precise to a thousandth of the interval."""

SHARING_GAIN = 2.0
"""A queue is shared among devices if the gain is at least this multiple of a launch's cost."""

ROUNDING_MS = 1e-3
"""Tolerance for rounding of times far from the clock's zero."""

LOOK_AGAIN_MS = 1.0
"""Minimum time until a device that leaves a queue to others checks it again."""


class Decider(Protocol):
    """The part of the batch policy's interface used here."""

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> LaunchNow | Wait: ...

    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None: ...


class Leave(Wait):
    """Decision: leave the queue to other devices, and decide again at `until_ms`."""


@dataclass(frozen=True, slots=True)
class Station:
    """A device and when it is expected to be free; the current time if it is idle."""

    model: LatencyModel
    free_ms: float

    def end_ms(self, positions: int) -> float:
        """Return when it would end this many positions."""
        return self.free_ms + self.model.drain_ms(positions)

    def by(self, end_ms: float) -> int:
        """Return how many positions it would end by a time."""
        milliseconds = end_ms - self.free_ms
        return self.model.within(milliseconds + ROUNDING_MS) if milliseconds > 0 else 0


def free_at_ms(expected_end_ms: float, now_ms: float) -> float:
    """Return when a device is expected to be free. An overdue one is expected to take as long again as it is
    late, so that no work is left to a hanging device permanently."""
    return expected_end_ms if expected_end_ms > now_ms else now_ms + (now_ms - expected_end_ms)


def share_out(stations: Sequence[Station], positions: int) -> tuple[float, list[int]]:
    """Return the earliest end of a number of positions, and the maximum part of each device; 0 for a device
    that should leave them to others.

    Positions are shared only if that pays: each device but one costs an additional launch.
    """
    ends = [station.end_ms(positions) for station in stations]
    alone_ms = min(ends)
    best = ends.index(alone_ms)
    used = [
        station if index == best else Station(station.model, station.free_ms + station.model.launch_ms)
        for index, station in enumerate(stations)
    ]
    latest = alone_ms
    earliest = min(station.free_ms for station in used)
    for _ in range(STEPS if len(used) > 1 else 0):
        middle = (earliest + latest) / 2
        ended = 0
        for station in used:
            ended += station.by(middle)
        if ended >= positions:
            latest = middle
        else:
            earliest = middle
            if alone_ms - earliest < SHARING_GAIN * stations[best].model.launch_ms:
                latest = alone_ms
                break
    if latest == alone_ms:
        return alone_ms, [positions if index == best else 0 for index in range(len(stations))]
    return latest, [station.by(latest) for station in used]


def place(
    scheduler: Scheduler,
    policy: Decider,
    most: int,
    own: Station,
    others: Sequence[Station],
    now_ms: float,
    busy_until_ms: float | None = None,
) -> tuple[LaunchNow | Wait, int]:
    """Return a device's decision for a nonempty queue, and how many positions to skip for it.

    most: largest batch of the device. others: other devices in use for this network. busy_until_ms: as in the
    policy.
    """
    if not others:
        return policy.decide(scheduler.pending(most), now_ms, busy_until_ms), 0
    queued = scheduler.positions
    if busy_until_ms is not None:
        launch_ms = policy.second_at_ms(queued, busy_until_ms)
        if launch_ms is not None and launch_ms > now_ms:
            return Wait(launch_ms), 0
    most = min(most, share_out((own, *others), queued)[1][0])
    if most < 1:
        return _leave(others, now_ms), 0
    decision = policy.decide(_at_most(scheduler.pending(most), most), now_ms, busy_until_ms)
    if isinstance(decision, Wait):
        return decision, 0
    end_ms = own.end_ms(decision.positions)
    if end_ms <= min(other.end_ms(decision.positions) for other in others):
        return decision, 0
    end_ms = own.end_ms(most)
    skip = sum([other.by(end_ms) for other in others])
    pending = _at_most(scheduler.pending(most, skip), most)
    if not pending:
        return _leave(others, now_ms), 0
    return policy.decide(pending, now_ms, busy_until_ms), skip


def _leave(others: Sequence[Station], now_ms: float) -> Leave:
    """Return a wait until another device should have started on the queue."""
    return Leave(max(now_ms, min(other.free_ms for other in others)) + LOOK_AGAIN_MS)


def _at_most(pending: list[Pending], most: int) -> list[Pending]:
    """Return the queue with the last request cut at `most` positions."""
    over = sum([each.positions for each in pending]) - most
    if over > 0:
        last = pending[-1]
        pending[-1] = Pending(last.positions - over, last.rank, last.arrived_ms, last.requests)
    return pending


def together(models: Sequence[LatencyModel]) -> tuple[int, Curve]:
    """Return the recommended batch and the curve of several idle devices that share each request.

    The batch is the sum of what each device computes in the time of the fastest one's own batch. A device
    that cannot finish any position in that time adds nothing.
    """
    if len(models) == 1:
        return models[0].knee, models[0].curve()
    fastest = max(models, key=lambda model: model.throughput(model.knee))
    knee_ms = fastest.milliseconds(fastest.knee)
    knee = sum(
        [model.knee if model is fastest else min(model.knee, model.within(knee_ms)) for model in models]
    )
    stations = [Station(model, 0.0) for model in models]
    most = sum([model.max_batch for model in models])
    ladder = {size for model in models for size in model.ladder}
    sizes = sorted({size for step in ladder for size in (step, step * len(models)) if size <= most} | {knee})
    longest = 0.0
    curve = []
    for size in sizes:
        longest = max(longest, share_out(stations, size)[0])
        curve.append((size, round(longest, 4)))
    return knee, tuple(curve)

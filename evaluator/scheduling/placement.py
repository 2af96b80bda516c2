# SPDX-License-Identifier: GPL-3.0-or-later
"""Which part of a queue a device takes when others could take it, too.

Pure, as the batch policy is: the service, the tests and the simulation run the same code. It is asked for
one device at a time, whenever one has nothing to do or is about to, and goes by when the others are expected
to be free and how long they take:

1. No device takes more than it would have of the queue if all of it were to end as early as possible. So a
   request is cut over devices that are idle, and one that comes alone is not, when that would gain nothing.
2. A device leaves to others what they would end sooner, and takes what they will not have come to by then. So
   a slow device that happens to be free takes no play from a fast one that is free before long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluator.scheduling.batching import Launch, Pending, Wait
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.scheduler import Scheduler

STEPS = 10
"""Halvings of the interval in which a queue's end is looked for: to a thousandth."""

SHARING_GAIN = 2.0
"""A queue is shared among devices if it ends sooner by at least so many times what a launch costs."""

ROUNDING_MS = 1e-3
"""Times far from the clock's zero are rounded: what ends a moment later ends in time."""

LOOK_AGAIN_MS = 1.0
"""A device that leaves a queue to others looks at it again no sooner."""


class Decider(Protocol):
    """What is asked of a batch policy here."""

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait: ...

    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Station:
    """A device and when it is expected to be free; now if it is idle."""

    model: LatencyModel
    free_ms: float

    def end_ms(self, positions: int) -> float:
        """When it would end so many positions."""
        return self.free_ms + self.model.drain_ms(positions)

    def by(self, end_ms: float) -> int:
        """How many positions it would end by then."""
        milliseconds = end_ms - self.free_ms
        return self.model.within(milliseconds + ROUNDING_MS) if milliseconds > 0 else 0


def free_at_ms(expected_end_ms: float, now_ms: float) -> float:
    """When a device is free that should end its work then. One that is overdue is expected to be so for as
    long again: a device that hangs must not be left any work for ever."""
    return expected_end_ms if expected_end_ms > now_ms else now_ms + (now_ms - expected_end_ms)


def share_out(stations: Sequence[Station], positions: int) -> tuple[float, list[int]]:
    """When so many positions end at the earliest, and the most that each device has of them for that; 0 for a
    device that had better leave them to others.

    They are shared only if that is worth it: each device but one costs a launch besides.
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
) -> tuple[Launch | Wait, int]:
    """What a device does about a queue that is not empty, and how many positions it passes over for that.

    most: the largest batch of the device. others: the other devices in use that could take it. busy_until_ms:
    as for the policy.
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


def _leave(others: Sequence[Station], now_ms: float) -> Wait:
    """To look again when another device should have begun with what is queued."""
    return Wait(max(now_ms, min(other.free_ms for other in others)) + LOOK_AGAIN_MS)


def _at_most(pending: list[Pending], most: int) -> list[Pending]:
    """The same queue, its last request cut where the device's part ends."""
    over = sum([each.positions for each in pending]) - most
    if over > 0:
        last = pending[-1]
        pending[-1] = Pending(last.positions - over, last.rank, last.arrived_ms, last.requests)
    return pending

# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch policy: how many queued positions a device should run next, or until when it should wait.

Pure: it is given times and events, does no I/O and holds no locks. The service, the simulation
(benchmarks/batching) and the tests run the same code. docs/explanation/batching.md has a comparison.

Rules:

1. Candidates are the sizes at which a request ends, and the ladder of the latency curve: whole requests if
   possible, cuts if the curve has a cliff (33 queued may be best as 32 now and 1 next).
2. A candidate costs its own time plus the best time for draining the rest.
3. Candidates that make the oldest request of a class miss its latency target are excluded, unless all do.
   A class whose oldest request is already late does not count while a higher class is active: its
   lateness would grow the batches, at the expense of the other's latency.
4. The rest within TOLERANCE of the cheapest (MIXED_TOLERANCE if several classes wait) count as equally fast.
   Among these the policy takes the least waiting for play, then analysis, then self-play.
5. An idle device takes work at once, unless recently answered clients are expected back soon. The
   policy waits if all requests are then served faster, by the clients' observed think times.
6. A busy device gets a second batch (to hide transfers) only if that batch is full and delays no higher
   class, or if the first batch is about to end.
7. While requests arrive that want a shorter latency than their class has (`hurry`), a deep queue runs in
   batches of about the knee, and a second batch waits until the first is about to end.
8. With side-by-side batches, none is larger than the curve's ceiling. It would be slower, and would leave
   the other part of the device idle.
9. While the curve is incomplete (growth.py), a deep queue tries the next size. The expected time of that
   batch must fit the targets of every class that it can delay.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from evaluator.scheduling.latency import LatencyModel

TOLERANCE = 0.02
"""Plans within this fraction of the fastest count as equally fast."""

MIXED_TOLERANCE = 0.10
"""The same while several classes are queued: the throughput that the higher class's latency may cost."""

RETURN_MEMORY = 0.25
"""Weight of the newest observation in a client's average time between answer and next request."""

SECOND_LEAD = 0.25
"""A second batch is launched when the first has this share of the second's time left."""

MAX_WAIT_SHARE = 0.5
"""Maximum wait as a share of the time of running the queue at once."""

WAIT_GAIN = 0.9
"""A wait must reduce the expected time per position to at most this share of running at once."""

ACTIVE_MS = 1000.0
"""A class that had a request within this time is expected to have another soon."""

MAX_CLIENTS = 1024
"""Clients whose think times are kept; beyond that the least recent one is deleted."""


class LatencyTargets(NamedTuple):
    """Target latencies per class in milliseconds, from receipt to answer."""

    play: float = 50.0
    analysis: float = 200.0
    selfplay: float = 1000.0


@dataclass(slots=True)
class Pending:
    """A request, or its untaken rest, in the order of the queue; or consecutive small requests described
    together.

    rank: 0 play, 1 analysis, 2 self-play. arrived_ms: time of receipt on the policy's clock; of the first if
    several. requests: how many.
    """

    positions: int
    rank: int
    arrived_ms: float
    requests: int = 1


@dataclass(frozen=True, slots=True)
class LaunchNow:
    """Decision: run the first `positions` queued positions now."""

    positions: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Decision: decide again at `until_ms`, or at an earlier arrival or end of a batch."""

    until_ms: float


@dataclass(slots=True)
class _Habit:
    """A client's average think time between an answer and its next request."""

    replied_ms: float = -1.0
    return_ms: float | None = None
    positions: float = 0.0


@dataclass(slots=True)
class BatchPolicy:
    """Decides the batches of one network on one device.

    model: the measured latency. side_by_side: True if the device computes several batches at the same time,
    each on a part of it. Times are milliseconds on any consistent clock.
    """

    model: LatencyModel
    targets: LatencyTargets = field(default_factory=LatencyTargets)
    side_by_side: bool = False
    _habits: dict[Hashable, _Habit] = field(default_factory=dict)
    _last_arrival: list[float] = field(default_factory=lambda: [-1e18, -1e18, -1e18])
    _hurried_ms: float = -1e18
    _hurried_target_ms: float = math.inf

    def last_arrival_ms(self, rank: int) -> float:
        """Return when the last request of a class arrived."""
        return self._last_arrival[rank]

    @property
    def largest_batch(self) -> int:
        """The largest batch that the policy may run at present."""
        model = self.model
        return max(model.ceiling if self.side_by_side else model.max_batch, model.trial or 0)

    def arrived(self, client: Hashable, positions: int, rank: int, now_ms: float) -> None:
        """Update the state with a client's request."""
        self._last_arrival[rank] = now_ms
        habit = self._habits.get(client)
        if habit is None:
            if len(self._habits) >= MAX_CLIENTS:
                del self._habits[next(iter(self._habits))]
            habit = self._habits[client] = _Habit()
        habit.positions += RETURN_MEMORY * (positions - habit.positions) if habit.positions else positions
        if habit.replied_ms >= 0:
            gap = now_ms - habit.replied_ms
            habit.replied_ms = -1.0
            if habit.return_ms is None:
                habit.return_ms = gap
            else:
                habit.return_ms += RETURN_MEMORY * (gap - habit.return_ms)

    def expect(self, rank: int, now_ms: float) -> None:
        """Note that requests of a class have arrived, and more are likely."""
        self._last_arrival[rank] = now_ms

    def hurry(self, target_ms: float, now_ms: float) -> None:
        """Note a request that wants a shorter latency than its class has. More are likely soon."""
        self._hurried_ms = now_ms
        self._hurried_target_ms = max(target_ms, 0.0)

    def replied(self, client: Hashable, now_ms: float) -> None:
        """Update the state with an answer to a client."""
        habit = self._habits.get(client)
        if habit is not None:
            habit.replied_ms = now_ms

    def forget(self, client: Hashable) -> None:
        """Delete the state of a disconnected client."""
        self._habits.pop(client, None)

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> LaunchNow | Wait:
        """Return the decision for a nonempty queue.

        pending: in queue order; entries beyond `largest_batch` may be missing. busy_until_ms: expected end of
        the batches on the device; None if it is idle.
        """
        model = self.model
        total = 0
        for request in pending:
            total += request.positions
        if busy_until_ms is not None:
            launch_ms = self.second_at_ms(total, busy_until_ms)
            if launch_ms is None and (
                self._hurried(now_ms) or self._higher_class_active(pending[0].rank, now_ms) is not None
            ):
                # Play that arrives meanwhile must not wait for two batches.
                blocks_ms = self._blocking_limit_ms(pending[0].rank, now_ms)
                if self._hurried(now_ms):
                    blocks_ms = min(blocks_ms, self._hurried_target_ms)
                launch_ms = busy_until_ms - SECOND_LEAD * min(blocks_ms, model.milliseconds(model.full))
            if launch_ms is not None and launch_ms > now_ms:
                return Wait(launch_ms)
        elif total < model.full and len(self._habits) > 1:
            until_ms = self._worth_waiting_until(total, pending, now_ms)
            if until_ms is not None:
                return Wait(until_ms)
        if (
            model.trial is not None
            and total >= model.trial
            and self._may_try(model.trial, pending, total, now_ms)
        ):
            return LaunchNow(model.trial)
        total = min(total, model.ceiling if self.side_by_side else model.max_batch)
        whole_ms = model.milliseconds(total)
        if (
            len(pending) == 1
            and model.drain_ms(total) >= (1 - TOLERANCE) * whole_ms
            and whole_ms <= self._blocking_limit_ms(pending[0].rank, now_ms)
        ):
            # With one request and no cliff, a partial batch answers nothing earlier.
            return LaunchNow(total)
        return LaunchNow(self._best_cut(pending, total, now_ms))

    def second_at_ms(self, total: int, busy_until_ms: float) -> float | None:
        """Return when to launch a batch of `total` as the second in flight; None for a full one, which starts
        at once. It should be ready when the first ends, and gathers requests until then."""
        if total >= self.model.full:
            return None
        return busy_until_ms - SECOND_LEAD * self.model.milliseconds(total)

    def _may_try(self, size: int, pending: Sequence[Pending], total: int, now_ms: float) -> bool:
        """Return True if no request becomes late by a batch of this size, which the queue fills."""
        model = self.model
        usual_ms, first_ms = model.milliseconds(min(size, model.measured)), model.milliseconds(size)
        all_ms = first_ms + (model.launch_ms + model.drain_ms(total - size) if total > size else 0.0)
        reached = 0
        for request in pending:
            if reached < size and first_ms > self._blocking_limit_ms(request.rank, now_ms):
                return False
            reached += request.positions
            left_ms = self.targets[request.rank] - (now_ms - request.arrived_ms)
            late = left_ms < (first_ms if reached <= size else all_ms)
            # A trial does no harm if a usual batch would make a lower class late as well.
            if late and (request.rank == 0 or usual_ms <= left_ms < first_ms):
                return False
        return True

    def _best_cut(self, pending: Sequence[Pending], total: int, now_ms: float) -> int:
        model = self.model
        ends = list(accumulate(request.positions for request in pending))
        if self._hurried(now_ms) and total > model.knee:
            # The batches of the deep queue would be up to ten times as long, for 5 % more throughput.
            return min(total, next(end for end in ends if end >= model.knee))
        whole = [end for end in ends if end < total]
        # With very many requests, a sample of their ends suffices.
        step = max(1, len(whole) // 32)
        sizes = sorted({*whole[::step], *(cut for cut in model.ladder if cut < total), total})
        counts = [bisect.bisect_right(ends, size) for size in sizes]
        taken, left = _summaries(pending, counts)
        costs = sorted(
            (
                model.milliseconds(size)
                + (model.launch_ms + model.drain_ms(total - size) if size < total else 0.0),
                size,
                count,
            )
            for size, count in zip(sizes, counts, strict=True)
        )
        mixed = pending[0].rank != max(request.rank for request in pending)
        tolerance = 1 + (MIXED_TOLERANCE if mixed else TOLERANCE)
        limit = math.inf
        in_time: list[tuple[tuple[float, ...], int]] = []
        late_plans: list[tuple[float, tuple[float, ...], int]] = []
        for cost_ms, size, count in costs:
            if cost_ms > limit:
                break  # all following sizes are excluded, too, so their costs are not needed
            first_ms = model.milliseconds(size)
            late = max(
                self._lateness(taken[count], first_ms, now_ms), self._lateness(left[count], cost_ms, now_ms)
            )
            # An active higher class will need the device while this batch runs.
            cut_into = count < len(pending) and (ends[count - 1] if count else 0) < size
            ranks = [rank for rank in range(3) if taken[count].requests[rank]]
            lowest = max([*ranks, pending[count].rank] if cut_into else ranks)
            late = max(late, first_ms / self._blocking_limit_ms(lowest, now_ms) - 1.0)
            waiting = tuple(
                taken[count].requests[rank] * first_ms + left[count].requests[rank] * cost_ms
                for rank in range(3)
            )
            if late <= 0:
                limit = min(limit, tolerance * cost_ms)
                in_time.append((waiting, size))
            elif cost_ms <= tolerance * costs[0][0]:
                late_plans.append((late, waiting, size))
        return min(in_time)[1] if in_time else min(late_plans)[2]

    def _hurried(self, now_ms: float) -> bool:
        """Return True while requests arrive that want a shorter latency than their class has."""
        return now_ms - self._hurried_ms < ACTIVE_MS

    def _lateness(self, summary: _Summary, done_ms: float, now_ms: float) -> float:
        """Return by how much the oldest requests would miss their targets at done_ms, relative to the
        targets. Lower classes that are already late do not count."""
        late = -1.0
        for rank in range(3):
            if not summary.requests[rank]:
                continue
            target_ms = self.targets[rank]
            waited_ms = now_ms - summary.oldest_ms[rank]
            if waited_ms < target_ms or self._higher_class_active(rank, now_ms) is None:
                late = max(late, (waited_ms + done_ms) / target_ms - 1.0)
        return late

    def _blocking_limit_ms(self, rank: int, now_ms: float) -> float:
        """Return how long a batch with requests of a class may occupy the device."""
        higher = self._higher_class_active(rank, now_ms) if rank else None
        return self.targets[rank] if higher is None else self.targets[higher] / 2

    def _higher_class_active(self, rank: int, now_ms: float) -> int | None:
        """Return the highest class above `rank` that is expected to have requests soon; None if none is."""
        for higher in range(rank):
            if now_ms - self._last_arrival[higher] < ACTIVE_MS:
                return higher
        return None

    def _worth_waiting_until(self, total: int, pending: Sequence[Pending], now_ms: float) -> float | None:
        """Return the expected return of clients worth waiting for; None if running at once is best."""
        at_once_ms = self.model.milliseconds(total)
        horizon_ms = MAX_WAIT_SHARE * at_once_ms
        # Count the wait from the oldest request, so that repeated waits cannot add up.
        oldest_ms = min(request.arrived_ms for request in pending)
        latest_ms = oldest_ms + horizon_ms
        if latest_ms <= now_ms:
            return None
        due: list[tuple[float, float]] = []
        for habit in self._habits.values():
            if habit.replied_ms >= 0 and habit.return_ms is not None:
                expected_ms = habit.replied_ms + 1.25 * habit.return_ms
                if now_ms <= expected_ms <= latest_ms:
                    due.append((expected_ms, habit.positions))
        due.sort()
        best_until: float | None = None
        best_per_position = WAIT_GAIN * at_once_ms / total
        more = 0.0
        for expected_ms, positions in due:
            more += positions
            size = min(total + int(more), self.model.max_batch)
            per_position = (expected_ms - now_ms + self.model.milliseconds(size)) / size
            if per_position < best_per_position:
                best_per_position, best_until = per_position, expected_ms
        return best_until


class _Summary(NamedTuple):
    """A part of the queue, by class: number of requests, and the oldest arrival."""

    requests: tuple[int, ...]
    oldest_ms: tuple[float, ...]


def _summaries(
    pending: Sequence[Pending], counts: Sequence[int]
) -> tuple[dict[int, _Summary], dict[int, _Summary]]:
    """Return for each count a summary of the first `count` requests, and one of the rest."""
    return (
        _running(pending, set(counts)),
        {
            len(pending) - count: summary
            for count, summary in _running(pending[::-1], {len(pending) - count for count in counts}).items()
        },
    )


def _running(pending: Sequence[Pending], wanted: set[int]) -> dict[int, _Summary]:
    requests = [0, 0, 0]
    oldest_ms = [math.inf, math.inf, math.inf]
    found = {}
    for count, each in enumerate(pending):
        if count in wanted:
            found[count] = _Summary(tuple(requests), tuple(oldest_ms))
        rank = each.rank
        requests[rank] += each.requests
        if each.arrived_ms < oldest_ms[rank]:
            oldest_ms[rank] = each.arrived_ms
    found[len(pending)] = _Summary(tuple(requests), tuple(oldest_ms))
    return found

# SPDX-License-Identifier: GPL-3.0-or-later
"""The queues of one network: classes, deadlines, and cutting requests into batches.

A pure data structure: no threads or sockets, and times are arguments. The dispatcher (dispatcher.py) has one
per network under its lock, and one order for all; the simulation has one, too.

Order: classes that are owed device time, then play, analysis, self-play. Within a class, weighted fair
queueing by positions (Bennett, Zhang: "WF2Q", 1996, without its eligibility), over all networks. So a client
that keeps a queue full does not delay one with few positions, whatever networks they use.

While requests of analysis or self-play wait, their class earns GUARANTEED_SHARE of the time that others use.
A class that is owed time goes first, and the time it then uses is deducted. So a deep queue takes no more
than this from play, and endless play leaves the others this. The networks on which a class waits divide its
share: else self-play that fills up batches of analysis on one network would pay for self-play on another.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from evaluator.scheduling.batching import Pending
from evaluator.scheduling.fair_queue import FairQueue, Turns
from evaluator.scheduling.requests import Request, Segment
from protocol.wire.messages import PRIORITIES

GUARANTEED_SHARE = 0.05
"""Minimum share of device time for analysis and for self-play, each while its requests wait."""

REMEMBERED_MS = 50.0
"""Maximum debt of a class that had the device to itself, unless its last batch was longer. It pays this back
before it is owed time again."""


class QueueLimits(NamedTuple):
    """Limits in positions: queued per network for each class; queued or running for a client."""

    play: int = 65536
    analysis: int = 65536
    selfplay: int = 65536
    client: int = 32768


class Order:
    """What the queues of all networks share. turns: by class. schedulers: of the served networks."""

    def __init__(self) -> None:
        self.turns = [Turns() for _ in PRIORITIES]
        self.schedulers: list[Scheduler] = []


class Scheduler:
    """Queued requests of one network. Its owner serialises access.

    positions: number of queued positions.
    """

    def __init__(self, order: Order | None = None) -> None:
        """order: shared with the other networks."""
        self.positions = 0
        self._order = Order() if order is None else order
        self._order.schedulers.append(self)
        self._queues = [FairQueue(rank, turns) for rank, turns in enumerate(self._order.turns)]
        self._ranks = [*range(len(PRIORITIES))]
        """The classes, as they are served."""
        self._owed_ms = [0.0] * len(PRIORITIES)
        """Device time owed to each class; negative for a class in debt. Not kept for play, which is first
        anyway."""
        self._deadlines: list[tuple[float, int, Request]] = []
        self._requests: dict[Hashable, dict[int, Request]] = {}
        self._count = 0
        self._serial = 0

    def __len__(self) -> int:
        """The number of requests queued."""
        return self._count

    def ran(self, milliseconds: float, segments: Sequence[Segment]) -> None:
        """Account for a batch of this network on all networks. segments: of its requests."""
        positions = [0] * len(self._queues)
        for request, start, stop in segments:
            positions[request.rank] += stop - start
        per_position = milliseconds / max(1, sum(positions))
        schedulers = self._order.schedulers
        for rank in range(1, len(positions)):
            waiting = 0
            for each in schedulers:
                waiting += each._queues[rank].positions > 0
            earned_ms = GUARANTEED_SHARE * milliseconds / (waiting or 1)
            for each in schedulers:
                used_ms = per_position * positions[rank] if each is self else 0.0
                owed = each._owed_ms
                after_ms = owed[rank] + earned_ms - used_ms
                if after_ms > 0 and not each._queues[rank].positions:
                    after_ms = 0.0  # a class without queued positions earns nothing, but pays back
                owed[rank] = max(after_ms, min(owed[rank], -used_ms, -REMEMBERED_MS))
        for each in schedulers:
            first = [rank for rank in range(len(positions)) if each._owed_ms[rank] > 0]
            each._ranks = first + [rank for rank in range(len(positions)) if rank not in first]

    def positions_of(self, rank: int) -> int:
        """The number of queued positions of one class."""
        return self._queues[rank].positions

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._queues[request.rank].add(request)
        self.positions += request.count
        self._requests.setdefault(request.client, {})[request.id] = request
        self._count += 1
        if request.deadline_ms is not None:
            self._serial += 1
            heapq.heappush(self._deadlines, (request.deadline_ms, self._serial, request))

    def remove(self, request: Request) -> None:
        """Close a request and remove its queued positions; running ones are not reported."""
        request.closed = True
        if self._requests.get(request.client, {}).get(request.id) is request:
            self._queues[request.rank].remove(request)
            self.positions -= request.count - request.taken
            self._left(request)

    def remove_client(self, client: Hashable) -> list[Request]:
        """Remove all queued requests of a client."""
        gone = list(self._requests.get(client, {}).values())
        for request in gone:
            self.remove(request)
        return gone

    def clear(self) -> list[Request]:
        """Remove all requests."""
        return [request for client in [*self._requests] for request in self.remove_client(client)]

    def expire(self, now_ms: float) -> list[Request]:
        """Remove the requests whose deadlines have passed before any of their positions was launched."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, request = heapq.heappop(self._deadlines)
            if request.taken == 0 and not request.closed:
                self.remove(request)
                expired.append(request)
        return expired

    def next_deadline_ms(self) -> float | None:
        """Return when `expire` will next have something to do."""
        while self._deadlines and (self._deadlines[0][2].closed or self._deadlines[0][2].taken):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def urgency(self) -> tuple[int, tuple[float, int, float]] | None:
        """Return (class, place) of the next request, class -1 if its class is owed time; None if empty."""
        for rank in self._ranks:
            first = self._queues[rank].first
            if first is not None:
                return (-1 if self._owed_ms[rank] > 0 else rank), first.place
        return None

    def before(self, rank: int, tag: float) -> int:
        """Return how many queued positions of a class have a finish tag of at most `tag`."""
        return self._queues[rank].before(tag)

    def pending(self, most: int, skip: int = 0) -> list[Pending]:
        """Describe the queue in order, skipping `skip` positions, until `most` positions are reached."""
        runs: list[Pending] = []
        reached = 0
        for queue in [self._queues[rank] for rank in self._ranks]:
            if skip >= queue.positions:
                skip -= queue.positions
            elif reached < most:
                available = queue.positions - skip
                runs += queue.describe(most - reached, skip, reached)
                reached += min(available, most - reached)
                skip = 0
        return runs

    def take(self, positions: int, now_ms: float, skip: int = 0) -> list[Segment]:
        """Remove up to `positions` positions from the queue, after skipping `skip`."""
        segments: list[Segment] = []
        for queue in [self._queues[rank] for rank in self._ranks]:
            if skip >= queue.positions:
                skip -= queue.positions
                continue
            for segment in queue.take(positions, skip):
                request, start, stop = segment
                positions -= stop - start
                self.positions -= stop - start
                segments.append(segment)
                if request.launched_ms < 0:
                    request.launched_ms = now_ms
                if stop == request.count:
                    self._left(request)
            skip = 0
            if not positions:
                break
        return segments

    def ahead_of(self, request: Request) -> int:
        """Return how many queued positions would be taken before a request if it were queued now."""
        own = self._queues[request.rank]
        higher = sum([queue.positions for queue in self._queues[: request.rank]])
        return higher + own.before(own.turns.tag_of(request))

    def _left(self, request: Request) -> None:
        """Delete the state of a request that has left its queue."""
        own = self._requests[request.client]
        del own[request.id]
        if not own:
            del self._requests[request.client]
        self._count -= 1

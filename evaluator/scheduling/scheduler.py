"""The queues of one network: classes, fairness between clients, deadlines, and cutting requests into batches.

Pure data structure: no threads, no sockets, told the time. The dispatcher (dispatcher.py) holds one
per network under its lock; the simulation holds one too.

Order: classes that are owed a part of the device (shares.py), then play, analysis, self-play. Within a class,
start-time fair queueing by positions: a client with few positions is not held up by one that keeps the queue
full (Goyal, Vin, Cheng: "Start-time fair queuing", 1996).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evaluator.scheduling.batching import Pending
from evaluator.scheduling.shares import ClassShares
from protocol.batch import EvaluationBatch, PositionBatch


@dataclass(slots=True, eq=False)
class Request:
    """An evaluate on its way through the service.

    client: who is answered. id: its own name for the request. rank: 0 play, 1 analysis, 2 self-play. Times
    are milliseconds on the service's monotonic clock; deadline_ms is None without a deadline.
    """

    client: Hashable
    id: int
    batch: PositionBatch
    rank: int
    arrived_ms: float
    deadline_ms: float | None = None
    count: int = 0
    taken: int = 0
    done: int = 0
    closed: bool = False
    launched_ms: float = -1.0
    compute_ms: float = 0.0
    largest_batch: int = 0
    parts: EvaluationBatch | None = None
    tag: float = 0.0

    def __post_init__(self) -> None:
        self.count = len(self.batch.positions)


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions start to stop of a request."""

    request: Request
    start: int
    stop: int


@dataclass(slots=True)
class _Class:
    """The queue of one class, in start-tag order."""

    requests: list[Request] = field(default_factory=list)
    finish_tags: dict[Hashable, float] = field(default_factory=dict)
    virtual: float = 0.0
    positions: int = 0


class Scheduler:
    """Queued requests of one network. Its owner serialises access."""

    def __init__(self) -> None:
        self._classes = (_Class(), _Class(), _Class())
        self._deadlines: list[tuple[float, int, Request]] = []
        self._by_key: dict[tuple[Hashable, int], Request] = {}
        self._shares = ClassShares()
        self._serial = 0
        self.positions = 0

    def __len__(self) -> int:
        """The number of requests queued."""
        return len(self._by_key)

    def positions_of(self, rank: int) -> int:
        """The number of queued positions of one class."""
        return self._classes[rank].positions

    def add(self, request: Request) -> None:
        """Queue a request."""
        queue = self._classes[request.rank]
        request.tag = max(queue.virtual, queue.finish_tags.get(request.client, 0.0))
        queue.finish_tags[request.client] = request.tag + request.count
        bisect.insort_right(queue.requests, request, key=_tag)
        queue.positions += request.count
        self.positions += request.count
        self._by_key[request.client, request.id] = request
        if request.deadline_ms is not None:
            self._serial += 1
            heapq.heappush(self._deadlines, (request.deadline_ms, self._serial, request))

    def remove(self, request: Request) -> None:
        """Close a request and take what is queued of it out; what runs of it already is not reported."""
        request.closed = True
        if self._by_key.pop((request.client, request.id), None) is None:
            return
        queue = self._classes[request.rank]
        queue.requests.remove(request)
        left = request.count - request.taken
        queue.positions -= left
        self.positions -= left

    def remove_client(self, client: Hashable) -> list[Request]:
        """Take out everything a client has queued."""
        gone = [request for key, request in self._by_key.items() if key[0] == client]
        for request in gone:
            self.remove(request)
        for queue in self._classes:
            queue.finish_tags.pop(client, None)
        return gone

    def clear(self) -> list[Request]:
        """Take out everything."""
        gone = list(self._by_key.values())
        for request in gone:
            self.remove(request)
        return gone

    def expire(self, now_ms: float) -> list[Request]:
        """Take out the requests whose deadline has passed before any of their positions was launched."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, request = heapq.heappop(self._deadlines)
            if request.taken == 0 and not request.closed:
                self.remove(request)
                expired.append(request)
        return expired

    def next_deadline_ms(self) -> float | None:
        """The time at which `expire` will next have something to do."""
        while self._deadlines and (self._deadlines[0][2].closed or self._deadlines[0][2].taken):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def urgency(self) -> tuple[int, float] | None:
        """(class, arrival) of what would be taken first, class -1 for one that is owed; None when empty."""
        for rank in self._ranks():
            requests = self._classes[rank].requests
            if requests:
                return (-1 if self._shares.owed(rank) else rank), requests[0].arrived_ms
        return None

    def pending(self, most: int) -> list[Pending]:
        """What would be taken, in order, up to the request that reaches `most` positions."""
        return [
            Pending(request.count - request.taken, request.rank, request.arrived_ms)
            for request in self._order(most)
        ]

    def take(self, positions: int, now_ms: float) -> list[Segment]:
        """Take that many positions (or all there are) off the queue."""
        segments = []
        for request in self._order(positions):
            size = min(positions, request.count - request.taken)
            segments.append(Segment(request, request.taken, request.taken + size))
            if request.launched_ms < 0:
                request.launched_ms = now_ms
            request.taken += size
            positions -= size
            queue = self._classes[request.rank]
            queue.positions -= size
            self.positions -= size
            if request.taken == request.count:
                queue.requests.remove(request)
                del self._by_key[request.client, request.id]
                queue.virtual = max(queue.virtual, request.tag)
                if not queue.requests:
                    # Nobody waits: nobody is owed anything.
                    queue.finish_tags.clear()
                    queue.virtual = 0.0
        return segments

    def ran(self, milliseconds: float, segments: Sequence[Segment] = ()) -> None:
        """Account for a batch that takes so long on a device of this network: of these positions of its own,
        none if another network's run there."""
        positions = [0] * len(self._classes)
        for segment in segments:
            positions[segment.request.rank] += segment.stop - segment.start
        per_position = milliseconds / max(1, sum(positions))
        waiting = [queue.positions for queue in self._classes]
        self._shares.ran(milliseconds, [per_position * count for count in positions], waiting)

    def _ranks(self) -> list[int]:
        """The classes in the order in which they are served."""
        return sorted(range(len(self._classes)), key=lambda rank: not self._shares.owed(rank))

    def _order(self, most: int) -> list[Request]:
        order: list[Request] = []
        positions = 0
        for rank in self._ranks():
            for request in self._classes[rank].requests:
                if positions >= most:
                    return order
                order.append(request)
                positions += request.count - request.taken
        return order


def parts_of(segments: list[Segment]) -> list[PositionBatch]:
    """The positions of each segment, without a copy."""
    return [
        segment.request.batch
        if segment.stop - segment.start == segment.request.count
        else segment.request.batch.slice(segment.start, segment.stop)
        for segment in segments
    ]


def distribute(segments: list[Segment], evaluation: EvaluationBatch) -> list[Request]:
    """Give each request its share of a merged evaluation; returns those that are now complete, with
    `parts` holding their whole evaluation."""
    complete = []
    sizes = [(segment.stop - segment.start, _moves(segment)) for segment in segments]
    for segment, part in zip(segments, evaluation.split(sizes), strict=True):
        request = segment.request
        if len(part) == request.count:
            request.parts = part
        else:
            if request.parts is None:
                request.parts = _empty(len(request.batch.moves), request.count)
            first = int(request.batch.move_offsets[segment.start])
            request.parts.logits[first : first + len(part.logits)] = part.logits
            request.parts.wdl[segment.start : segment.stop] = part.wdl
            request.parts.moves_left[segment.start : segment.stop] = part.moves_left
        request.done += len(part)
        if request.done == request.count and not request.closed:
            request.closed = True
            complete.append(request)
    return complete


def _moves(segment: Segment) -> int:
    offsets = segment.request.batch.move_offsets
    return int(offsets[segment.stop]) - int(offsets[segment.start])


def _empty(moves: int, positions: int) -> EvaluationBatch:
    logits: NDArray[np.float32] = np.empty(moves, np.float32)
    return EvaluationBatch(logits, np.empty((positions, 3), np.float32), np.empty(positions, np.float32))


def _tag(request: Request) -> float:
    return request.tag

# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of one class and network, ordered by weighted fair queueing, with partial sums.

Each request has a start and a finish tag: the virtual times at which a round-robin over clients by positions
reaches and ends it. The earliest finish goes first. A client that keeps the queue full has tags far ahead; a
client with few positions does not, and is served soon, however many others there are. The queues of all
networks share the tags of a class (Turns).

The clients of a payer (a key, a program, an address: Session.payer) share its turns: if N of them have
requests queued, a position of theirs counts as N.

A position of a request that wants a short latency (`target_ms`) counts as 1 / HURRIED_SHARE.

The queue is a list of blocks of requests, each with the sum of their positions. The far end of a long queue
is described by blocks, at a cost independent of the queue's length.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import inf
from operator import itemgetter

from evaluator.scheduling.batching import Pending
from evaluator.scheduling.requests import Request, Segment

BLOCK = 16
"""Maximum requests per block."""

RESOLUTION = 16
"""Requests are described individually up to this many positions. Beyond, requests are described together if
they are at most this fraction of the positions before them: a batch of 1,000 is not cut for one position."""

HURRIED_SHARE = 2
"""Maximum share of a client whose requests want a short latency, relative to the shares of others. In the
simulation, 4 shortens the latency no further on a CPU, and by 15 % on a GPU."""


MOST_TAGS = 4096
"""Clients of a class whose tags are kept while its queues are not empty."""


@dataclass(slots=True, eq=False)
class _Block:
    """Consecutive requests. positions: those not taken yet. oldest_ms: the earliest arrival."""

    requests: list[Request]
    positions: int = 0
    oldest_ms: float = 0.0

    def add_up(self) -> None:
        """Recompute the sums after requests have left."""
        self.positions = sum([request.count - request.taken for request in self.requests])
        self.oldest_ms = min([request.arrived_ms for request in self.requests], default=0.0)


class Turns:
    """The tags of one class. virtual: start tag of new clients, that of the next request of the last network.
    It also grows by itself: else endless new clients would keep the others waiting."""

    def __init__(self) -> None:
        self.virtual = 0.0
        self.queues: set[FairQueue] = set()
        self._finish_tags: dict[Hashable, float] = {}
        self._queued: dict[Hashable, Counter[Hashable]] = {}
        """Requests queued, by payer and client."""
        self._shares = 0.0
        """Sum of the shares of the clients with requests."""
        self._serial = 0

    def tag_of(self, request: Request) -> float:
        """Return the finish tag of a request if it were queued now, as its payer's only one."""
        return max(self.virtual, self._finish_tags.get(request.client, 0.0)) + request.count / request.share

    def give_place(self, request: Request) -> None:
        """Set the place of an arrived request."""
        queued = self._queued.setdefault(request.payer, Counter())
        queued[request.client] += 1
        self._shares += request.share if queued[request.client] == 1 else 0.0
        cost = request.count * len(queued) / request.share
        if request.target_ms is not None:
            cost /= HURRIED_SHARE
        self._serial += 1
        tag = max(self.virtual, self._finish_tags.get(request.client, 0.0))
        self._finish_tags[request.client] = tag + cost
        request.place = (tag + cost, self._serial, tag)
        if len(self._finish_tags) > MOST_TAGS:  # The lowest are over, or soon.
            highest = sorted(self._finish_tags.items(), key=itemgetter(1))[MOST_TAGS // 2 :]
            self._finish_tags = dict(highest)

    def left(self, request: Request) -> None:
        """Note that a request has left its queue."""
        queued = self._queued[request.payer]
        queued[request.client] -= 1
        if not queued[request.client]:
            self._shares -= request.share
            del queued[request.client]
            if not queued:
                del self._queued[request.payer]

    def took(self, positions: int) -> None:
        """Count positions that are evaluated. If no others are queued, no client is owed anything."""
        if self.queues:
            next_tag = min([queue._blocks[0].requests[0].place[2] for queue in self.queues])
            self.virtual = max(self.virtual + positions / max(1.0, HURRIED_SHARE * self._shares), next_tag)
        else:
            self._finish_tags.clear()
            self.virtual = self._shares = 0.0


class FairQueue:
    """The queued requests of one class and network. Its owner serialises access.

    positions: number of queued positions. turns: shared with the class's queues of other networks.
    """

    def __init__(self, rank: int, turns: Turns | None = None) -> None:
        self.rank = rank
        self.positions = 0
        self.turns = Turns() if turns is None else turns
        self._blocks: list[_Block] = []
        self._last_places: list[tuple[float, int, float]] = []
        """Place of the last request of each block."""

    @property
    def first(self) -> Request | None:
        """The next request to be taken, or None."""
        return self._blocks[0].requests[0] if self._blocks else None

    def add(self, request: Request) -> None:
        """Insert a request at its place."""
        self.turns.give_place(request)
        self.turns.queues.add(self)
        self.positions += request.count
        index = bisect.bisect_left(self._last_places, request.place)
        if index == len(self._blocks):
            if not index or len(self._blocks[-1].requests) >= BLOCK:
                self._blocks.append(_Block([request], request.count, request.arrived_ms))
                self._last_places.append(request.place)
                return
            index -= 1
        block = self._blocks[index]
        bisect.insort_left(block.requests, request, key=lambda each: each.place)
        block.positions += request.count
        block.oldest_ms = min(block.oldest_ms, request.arrived_ms)
        if len(block.requests) > BLOCK:
            behind = _Block(block.requests[BLOCK // 2 :])
            del block.requests[BLOCK // 2 :]
            block.add_up()
            behind.add_up()
            self._blocks.insert(index + 1, behind)
            self._last_places.insert(index + 1, behind.requests[-1].place)
        self._last_places[index] = block.requests[-1].place

    def remove(self, request: Request) -> None:
        """Remove a queued request."""
        index = bisect.bisect_left(self._last_places, request.place)
        block = self._blocks[index]
        block.requests.remove(request)
        self.turns.left(request)
        self._tidy(index)
        self.positions -= request.count - request.taken
        self.turns.took(0)

    def describe(self, most: int, skip: int, before: int) -> list[Pending]:
        """Describe the queue in order, skipping `skip` positions, until `most` positions are reached.

        before: positions that are taken before these. Requests of few positions among many are described
        together.
        """
        runs: list[Pending] = []
        reached = before
        most += before
        run: Pending | None = None
        for block in self._blocks:
            if reached >= most:
                break
            if skip >= block.positions:
                skip -= block.positions
                continue
            if not skip and block.positions * RESOLUTION <= reached:
                runs.append(Pending(block.positions, self.rank, block.oldest_ms, len(block.requests)))
                reached += block.positions
                run = None
                continue
            for request in block.requests:
                left = request.count - request.taken - skip
                if left <= 0:
                    skip = -left
                    continue
                skip = 0
                reached += left
                if run is not None and (run.positions + left) * RESOLUTION <= reached:
                    run.positions += left
                    run.requests += 1
                    if request.arrived_ms < run.arrived_ms:
                        run.arrived_ms = request.arrived_ms
                else:
                    run = Pending(left, self.rank, request.arrived_ms)
                    runs.append(run)
                if reached >= most:
                    break
        return runs

    def take(self, positions: int, skip: int = 0) -> list[Segment]:
        """Take up to `positions` positions after skipping `skip`. Updates each request's `taken`; completely
        taken requests leave the queue."""
        segments: list[Segment] = []
        wanted = positions
        index = 0
        while positions and index < len(self._blocks):
            block = self._blocks[index]
            if skip >= block.positions:
                skip -= block.positions
                index += 1
                continue
            whole = []
            for request in block.requests:
                start = request.taken
                left = request.count - start - skip
                if left <= 0:
                    skip = -left
                    continue
                skip = 0
                if left > positions:
                    left = positions
                positions -= left
                stop = request.taken = start + left
                segments.append(Segment(request, start, stop))
                if stop == request.count:
                    whole.append(request)
                if not positions:
                    break
            for request in whole:
                self.turns.left(request)
            blocks = len(self._blocks)
            if whole:  # consecutive ones
                start = block.requests.index(whole[0])
                del block.requests[start : start + len(whole)]
            self._tidy(index)
            index += len(self._blocks) == blocks
        self.positions -= wanted - positions
        self.turns.took(wanted - positions)
        return segments

    def before(self, tag: float) -> int:
        """Return the number of queued positions with a finish tag of at most `tag`."""
        index = bisect.bisect_left(self._last_places, (tag, inf, 0.0))
        ahead = sum([block.positions for block in self._blocks[:index]])
        if index < len(self._blocks):
            for request in self._blocks[index].requests:
                if request.place[0] > tag:
                    break
                ahead += request.count - request.taken
        return ahead

    def __iter__(self) -> Iterator[Request]:
        for block in self._blocks:
            yield from block.requests

    def _tidy(self, index: int) -> None:
        """Recompute a block's sums after requests have left; remove it if it is empty."""
        block = self._blocks[index]
        if block.requests:
            block.add_up()
            self._last_places[index] = block.requests[-1].place
        else:
            del self._blocks[index]
            del self._last_places[index]
            if not self._blocks:
                self.turns.queues.discard(self)

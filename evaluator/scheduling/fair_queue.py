# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of one class: requests in the order of start-time fair queueing, with sums that spare walking it.

Each request has a start tag: the virtual time at which its client, taking positions in turn with the others,
comes to it. The virtual time is the tag of what was taken last. A client that keeps the queue full runs ahead
of it, one with few positions does not, and so comes soon.

The queue is a list of blocks of some requests each, with their positions added up. What is far back in a long
queue is described by its blocks, at a cost that does not grow with the queue.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from evaluator.scheduling.batching import Pending
from evaluator.scheduling.requests import Request, Segment

BLOCK = 16
"""Most requests in a block."""

RESOLUTION = 16
"""Requests are described one by one until so many positions, and then together where they are at most this
part of the positions before them: nobody cuts a batch of a thousand positions for the sake of one."""


@dataclass(slots=True, eq=False)
class _Block:
    """Requests that follow each other. positions: those not taken yet. oldest_ms: the earliest arrival."""

    requests: list[Request]
    positions: int = 0
    oldest_ms: float = 0.0

    def add_up(self) -> None:
        """Make the sums anew after requests have left."""
        self.positions = sum([request.count - request.taken for request in self.requests])
        self.oldest_ms = min([request.arrived_ms for request in self.requests], default=0.0)


class FairQueue:
    """The queued requests of one class. Its owner serialises access.

    positions: how many are queued.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.positions = 0
        self._blocks: list[_Block] = []
        self._last_places: list[tuple[float, int]] = []
        """Of the last request of each block."""
        self._finish_tags: dict[Hashable, float] = {}
        self._virtual = 0.0
        self._serial = 0

    @property
    def first(self) -> Request | None:
        """The request that is next to be taken."""
        return self._blocks[0].requests[0] if self._blocks else None

    def add(self, request: Request) -> None:
        """Queue a request at its place."""
        tag = max(self._virtual, self._finish_tags.get(request.client, 0.0))
        self._finish_tags[request.client] = tag + request.count
        self._serial += 1
        request.place = (tag, self._serial)
        self.positions += request.count
        index = bisect.bisect_left(self._last_places, request.place)
        if index == len(self._blocks):
            if not index or len(self._blocks[-1].requests) >= BLOCK:
                self._blocks.append(_Block([request], request.count, request.arrived_ms))
                self._last_places.append(request.place)
                return
            index -= 1
        block = self._blocks[index]
        bisect.insort_left(block.requests, request, key=_place)
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
        """Take out a queued request."""
        index = bisect.bisect_left(self._last_places, request.place)
        block = self._blocks[index]
        block.requests.remove(request)
        self.positions -= request.count - request.taken
        self._tidy(index)

    def forget(self, client: Hashable) -> None:
        """Drop what is known of a client that is gone, whose requests have been taken out."""
        self._finish_tags.pop(client, None)

    def describe(self, most: int, skip: int, before: int) -> list[Pending]:
        """What would be taken, in order, after passing over `skip` positions and up to what reaches `most`.

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
        """Take that many positions, or all there are, after passing over `skip`. A request's `taken` is
        counted up; one that is taken to its end leaves the queue."""
        segments: list[Segment] = []
        in_order = not skip
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
            if whole and in_order:
                self._virtual = max(self._virtual, whole[-1].place[0])
            blocks = len(self._blocks)
            _drop(block.requests, whole)
            self._tidy(index)
            index += len(self._blocks) == blocks
        self.positions -= wanted - positions
        return segments

    def ahead_of(self, tag: float) -> int:
        """How many positions are queued before a request with that start tag."""
        index = bisect.bisect_left(self._last_places, (tag, self._serial + 1))
        ahead = sum([block.positions for block in self._blocks[:index]])
        if index < len(self._blocks):
            for request in self._blocks[index].requests:
                if request.place[0] > tag:
                    break
                ahead += request.count - request.taken
        return ahead

    def tag_of(self, client: Hashable) -> float:
        """The start tag that the client's next request will have."""
        return max(self._virtual, self._finish_tags.get(client, 0.0))

    def __iter__(self) -> Iterator[Request]:
        for block in self._blocks:
            yield from block.requests

    def _tidy(self, index: int) -> None:
        """Make a block's sums anew after requests have left it; drop it when none is left."""
        block = self._blocks[index]
        if block.requests:
            block.add_up()
            self._last_places[index] = block.requests[-1].place
        else:
            del self._blocks[index]
            del self._last_places[index]
            if not self._blocks:
                # Nobody waits: nobody is owed anything.
                self._finish_tags.clear()
                self._virtual = 0.0


def _drop(requests: list[Request], gone: list[Request]) -> None:
    """Take requests that follow each other out of a list."""
    if gone:
        start = requests.index(gone[0])
        del requests[start : start + len(gone)]


def _place(request: Request) -> tuple[float, int]:
    return request.place

# SPDX-License-Identifier: GPL-3.0-or-later
"""A request in the service, and the segments of it that run in batches.

Plain data, and functions that assemble a request's answer from the batches of its segments.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.batch import EvaluationBatch, PositionBatch

ANSWER_BYTES, MOVE_ANSWER_BYTES = 16, 4
"""Bytes of an answer per position and per move."""

OVERHEAD_BYTES = 2048
"""Bytes of a request and its answer in addition to their arrays."""


@dataclass(slots=True, eq=False)
class Request:
    """An evaluate request in the service.

    client: its sender. id: the sender's id of the request. rank: 0 play, 1 analysis, 2 self-play. Times are
    milliseconds on the service's monotonic clock; deadline_ms: None without a deadline. place: in the order
    of its class (fair_queue.py). network: content hash to name in the answer; empty for none. target_ms:
    wanted latency; None for that of its class.
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
    place: tuple[float, int] = (0.0, 0)
    network: str = ""
    target_ms: float | None = None

    def __post_init__(self) -> None:
        self.count = len(self.batch.positions)

    @property
    def answer_bytes(self) -> int:
        """Bytes of the answer's arrays."""
        return ANSWER_BYTES * self.count + MOVE_ANSWER_BYTES * len(self.batch.moves)

    @property
    def footprint(self) -> int:
        """Bytes of the request's and the answer's arrays, plus overhead."""
        batch = self.batch
        arrays = batch.positions.nbytes + batch.move_offsets.nbytes + batch.moves.nbytes
        return OVERHEAD_BYTES + arrays + self.answer_bytes


class Segment(NamedTuple):
    """Positions start to stop (exclusive) of a request."""

    request: Request
    start: int
    stop: int


def parts_of(segments: list[Segment]) -> list[PositionBatch]:
    """Return the positions of each segment, without a copy."""
    return [
        segment.request.batch
        if segment.stop - segment.start == segment.request.count
        else segment.request.batch.slice(segment.start, segment.stop)
        for segment in segments
    ]


def distribute(segments: list[Segment], evaluation: EvaluationBatch) -> Iterator[Request]:
    """Give each request its part of a batch's evaluation. Yields the requests that are now complete, with
    their evaluation in `parts`."""
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
            yield request


def _moves(segment: Segment) -> int:
    offsets = segment.request.batch.move_offsets
    return int(offsets[segment.stop]) - int(offsets[segment.start])


def _empty(moves: int, positions: int) -> EvaluationBatch:
    logits: NDArray[np.float32] = np.empty(moves, np.float32)
    return EvaluationBatch(logits, np.empty((positions, 3), np.float32), np.empty(positions, np.float32))

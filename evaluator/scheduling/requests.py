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

    client: its sender. id: the sender's id of the request. payer: whose share of the device it uses (default:
    the client's own). rank: 0 play, 1 analysis, 2 self-play. Times are milliseconds on the service's
    monotonic clock; deadline_ms: None without a deadline. place: finish tag, number and start tag in the
    order of its class (fair_queue.py). network: content hash to name in the answer; empty for none.
    target_ms: wanted latency; None for that of its class. share: of the device, relative to 1 of others.
    answer_bytes: of the answer's arrays. footprint: bytes of the request's and the answer's arrays, plus
    overhead.
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
    place: tuple[float, int, float] = (0.0, 0, 0.0)
    network: str = ""
    target_ms: float | None = None
    answer_bytes: int = 0
    footprint: int = 0
    payer: Hashable = None
    share: float = 1.0

    def __post_init__(self) -> None:
        batch = self.batch
        if self.payer is None:
            self.payer = self.client
        self.count = len(batch.positions)
        self.answer_bytes = ANSWER_BYTES * self.count + MOVE_ANSWER_BYTES * len(batch.moves)
        arrays = batch.positions.nbytes + batch.move_offsets.nbytes + batch.moves.nbytes
        self.footprint = OVERHEAD_BYTES + arrays + self.answer_bytes


class Segment(NamedTuple):
    """Positions start to stop (exclusive) of a request."""

    request: Request
    start: int
    stop: int


def parts_of(segments: list[Segment]) -> list[PositionBatch]:
    """Return the positions of each segment, without a copy."""
    parts = []
    for request, start, stop in segments:
        whole = stop - start == request.count
        parts.append(request.batch if whole else request.batch.slice(start, stop))
    return parts


def distribute(segments: list[Segment], evaluation: EvaluationBatch) -> Iterator[Request]:
    """Give each request its part of a batch's evaluation. Yields the requests that are now complete, with
    their evaluation in `parts`."""
    logits, wdl, moves_left = evaluation.logits, evaluation.wdl, evaluation.moves_left
    position = move = 0
    for request, start, stop in segments:
        offsets = request.batch.move_offsets
        first = int(offsets[start])
        moves, count = int(offsets[stop]) - first, stop - start
        of_moves, of_positions = slice(move, move + moves), slice(position, position + count)
        move, position = move + moves, position + count
        if count == request.count:
            request.parts = EvaluationBatch(logits[of_moves], wdl[of_positions], moves_left[of_positions])
        else:
            if request.parts is None:
                request.parts = _empty(len(request.batch.moves), request.count)
            request.parts.logits[first : first + moves] = logits[of_moves]
            request.parts.wdl[start:stop] = wdl[of_positions]
            request.parts.moves_left[start:stop] = moves_left[of_positions]
        request.done += count
        if request.done == request.count and not request.closed:
            request.closed = True
            yield request


def _empty(moves: int, positions: int) -> EvaluationBatch:
    logits: NDArray[np.float32] = np.empty(moves, np.float32)
    return EvaluationBatch(logits, np.empty((positions, 3), np.float32), np.empty(positions, np.float32))

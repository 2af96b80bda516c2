# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests with the batches of several searches, and the senders of these batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from engine._core import Batch, Tree
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError
from engine.evaluation.link.encoding import joined_batches
from engine.evaluation.link.process import NetworkKey
from protocol.batch import EvaluationBatch, PositionBatch

S = TypeVar("S")


class Sender(Protocol[S]):
    """A sender of batches through a PooledEvaluator. Attributes and methods: see PooledPipeline."""

    search: S
    network: NetworkKey
    identity: str
    failure: PipelineError | NoEvaluatorError | NetworkChangedError | None
    target_ms: float | None

    @property
    def tree(self) -> Tree | None: ...
    def waits_for(self, batch: Any) -> bool: ...
    def apply(self, batch: Any, evaluation: EvaluationBatch) -> bool: ...


@dataclass(slots=True, eq=False)
class Part(Generic[S]):
    """A search's batch that is in a request, or waits for one."""

    pipeline: Sender[S]
    batch: Batch | PositionBatch
    size: int

    @property
    def moves(self) -> int:
        return self.batch.move_count if isinstance(self.batch, Batch) else len(self.batch.moves)

    @property
    def wanted(self) -> bool:
        return self.pipeline.waits_for(self.batch)

    def was_abandoned(self, tree: Tree) -> bool:
        """Return True if an earlier search of this tree waited for it."""
        return not self.wanted and self.pipeline.tree is tree


@dataclass(slots=True, eq=False)
class JointRequest(Generic[S]):
    """A request with the batches of several searches. shapes: positions and moves of each. target_ms: the
    shortest latency that a part asks for. If several evaluators share the work, sent_at: monotonic seconds.
    expected_ms: latency by the curve. share_ms: device time."""

    network: NetworkKey
    parts: Sequence[Part[S]]
    shapes: Sequence[tuple[int, int]]
    size: int
    target_ms: float | None
    sent_at: float = 0.0
    expected_ms: float = 0.0
    share_ms: float = 0.0

    def distribute(self, evaluation: EvaluationBatch) -> set[S]:
        """Apply an answer's parts to the searches that still wait for them, and return these searches."""
        served: set[S] = set()
        for part, own in zip(self.parts, evaluation.split(self.shapes), strict=True):
            if part.pipeline.apply(part.batch, own):
                served.add(part.pipeline.search)
        return served


def joined(key: NetworkKey, parts: Sequence[Part[S]], most: int) -> tuple[JointRequest[S], PositionBatch]:
    """Join the first parts, at least one and at most `most` positions, to one request."""
    size, end = parts[0].size, 1
    while end < len(parts) and size + parts[end].size <= most:
        size, end = size + parts[end].size, end + 1
    return request_of(key, parts[:end]), joined_batches([part.batch for part in parts[:end]])


def request_of(key: NetworkKey, parts: Sequence[Part[S]]) -> JointRequest[S]:
    """Return the request with these parts."""
    shapes = [(part.size, part.moves) for part in parts]
    targets = [part.pipeline.target_ms for part in parts if part.pipeline.target_ms is not None]
    return JointRequest(key, parts, shapes, sum(part.size for part in parts), min(targets, default=None))


def fail(parts: Sequence[Part[S]], error: PipelineError | NoEvaluatorError | NetworkChangedError) -> set[S]:
    """Record the error in the searches that still wait for these parts, and return them."""
    pipelines = {part.pipeline for part in parts if part.wanted}
    for pipeline in pipelines:
        pipeline.failure = error
    return {pipeline.search for pipeline in pipelines}

# SPDX-License-Identifier: GPL-3.0-or-later
"""Pipelines evaluate a search's batches: on the evaluator, or at random in this process."""

from __future__ import annotations

from typing import Protocol

from engine._core import Batch, Tree
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError


class Pipeline(Protocol):
    """Evaluation of a search's batches. The pipeline owns a batch from `submit` until it is applied.

    failure: why the evaluator rejected them. The search then ends, or restarts after a NetworkChangedError.
    """

    failure: PipelineError | NoEvaluatorError | NetworkChangedError | None

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet applied."""

    @property
    def in_flight_visits(self) -> int:
        """Positions in flight that get a visit, look-ahead excluded."""

    def take(self) -> Batch:
        """Return an empty batch to collect into."""

    def release(self, batch: Batch) -> None:
        """Return a batch from `take` that was not submitted."""

    def submit(self, batch: Batch) -> None:
        """Send a batch without waiting."""

    def abandon(self) -> None:
        """Take back the visits of all batches in flight, at once. Their late results go to the cache."""


class InstantPipeline:
    """Evaluate at random in this process, at once, to measure the search alone."""

    def __init__(self, tree: Tree, capacity: int) -> None:
        self.in_flight = 0
        self.in_flight_visits = 0
        self.failure: PipelineError | NoEvaluatorError | NetworkChangedError | None = None
        self._tree = tree
        self._batch = Batch(capacity)

    def take(self) -> Batch:
        return self._batch

    def release(self, batch: Batch) -> None:
        pass

    def submit(self, batch: Batch) -> None:
        self._tree.apply_random(batch)

    def abandon(self) -> None:
        pass

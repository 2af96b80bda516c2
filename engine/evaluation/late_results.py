# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations that arrive after the end of their search go to the cache, for the next search."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from engine._core import Batch, Tree
from engine.evaluation.errors import PipelineError
from protocol.errors import EvaluatorLost

if TYPE_CHECKING:
    from protocol.batch import EvaluationBatch
    from protocol.client import Completed, EvaluatorClient


class LateResults:
    """The abandoned batches of one player's searches, until their evaluations arrive.

    The evaluator continues with them during the opponent's time. The next search takes their results. One
    thread at a time may use it.
    """

    def __init__(self) -> None:
        self._client: EvaluatorClient | None = None
        self._awaited: dict[int, tuple[Tree, Batch]] = {}

    def expect(self, client: EvaluatorClient | None, tree: Tree, batches: Mapping[int, Batch]) -> None:
        """Await the evaluations of abandoned batches of a tree. batches: by request number."""
        if client is not self._client:  # Results of another connection will never arrive.
            self._awaited.clear()
            self._client = client
        if client is not None:
            self._awaited.update((identity, (tree, batch)) for identity, batch in batches.items())

    def take(self, client: EvaluatorClient | None, completed: Completed) -> None:
        """Put an answer into the cache of its tree, if it is awaited."""
        if client is not self._client:
            return
        tree, batch = self._awaited.pop(completed.id, (None, None))
        if tree is not None and batch is not None and completed.evaluation is not None:
            cache_evaluation(tree, batch, completed.evaluation)

    def awaited_from(self, client: EvaluatorClient | None) -> bool:
        """Return True if this connection still owes an answer."""
        return client is not None and client is self._client and bool(self._awaited)

    def hurry(self) -> None:
        """Cancel the requests that the evaluator has not started, because a search needs it now."""
        if self._client is None:
            return
        try:
            for identity in self._awaited:
                self._client.cancel(identity)
        except EvaluatorLost:  # The next user of the connection gets the error.
            self._awaited.clear()


def cache_evaluation(tree: Tree, batch: Batch, evaluation: EvaluationBatch) -> None:
    """Add the evaluations of an abandoned batch to its tree's cache, if they are valid."""
    with suppress(PipelineError):
        apply_evaluation(tree, batch, evaluation)


def apply_evaluation(tree: Tree, batch: Batch, evaluation: EvaluationBatch) -> None:
    """Apply the evaluations of a batch to its tree.

    Raises PipelineError, and cancels the batch, if they are invalid.
    """
    try:
        tree.apply(batch, evaluation.logits, evaluation.wdl, evaluation.moves_left)
    except ValueError as error:
        tree.cancel(batch)
        raise PipelineError(f"the evaluator sent an unusable result: {error}") from None

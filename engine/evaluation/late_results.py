# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations that come after their search has ended: they go to the cache, for the next search to find."""

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
    """The batches that one player's searches have abandoned, until their evaluations come.

    The evaluator goes on with them on the opponent's time; the next search takes what has come. Belongs to
    one thread at a time.
    """

    def __init__(self) -> None:
        self._client: EvaluatorClient | None = None
        self._awaited: dict[int, tuple[Tree, Batch]] = {}

    def expect(self, client: EvaluatorClient | None, tree: Tree, batches: Mapping[int, Batch]) -> None:
        """Await the evaluations of abandoned batches of a tree. batches: by the number of their request."""
        if client is not self._client:  # What another connection owes will never come.
            self._awaited.clear()
            self._client = client
        if client is not None:
            self._awaited.update((identity, (tree, batch)) for identity, batch in batches.items())

    def take(self, client: EvaluatorClient | None, completed: Completed) -> None:
        """Put an answer into the cache of its tree, if it is one of those awaited."""
        if client is not self._client:
            return
        tree, batch = self._awaited.pop(completed.id, (None, None))
        if tree is not None and batch is not None and completed.evaluation is not None:
            cache_evaluation(tree, batch, completed.evaluation)

    def awaited_from(self, client: EvaluatorClient | None) -> bool:
        """Whether this connection still owes an answer."""
        return client is not None and client is self._client and bool(self._awaited)

    def hurry(self) -> None:
        """Ask the evaluator to leave out what it has not begun: there is a search that needs it now."""
        if self._client is None:
            return
        try:
            for identity in self._awaited:
                self._client.cancel(identity)
        except EvaluatorLost:  # The next user of the connection finds that out.
            self._awaited.clear()


def cache_evaluation(tree: Tree, batch: Batch, evaluation: EvaluationBatch) -> None:
    """Take the evaluations of an abandoned batch into its tree's cache, if they can be used."""
    with suppress(PipelineError):
        apply_evaluation(tree, batch, evaluation)


def apply_evaluation(tree: Tree, batch: Batch, evaluation: EvaluationBatch) -> None:
    """Take the evaluations of a batch into the tree it was collected from.

    Raises PipelineError if they cannot be used; the batch is then cancelled.
    """
    try:
        tree.apply(batch, evaluation.logits, evaluation.wdl, evaluation.moves_left)
    except ValueError as error:
        tree.cancel(batch)
        raise PipelineError(f"the evaluator sent an unusable result: {error}") from None

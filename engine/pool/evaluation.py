# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions of a pool that the network evaluates without a search."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

from engine._core import Batch, Game
from engine.evaluation.balancing.pooled import PooledEvaluator
from engine.evaluation.connection.process import EvaluatorSettings
from engine.evaluation.encoding import HistoryFill, encode_games
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError
from engine.options import Options
from engine.search.control import SearchControl
from protocol.batch import EvaluationBatch, PositionBatch

Evaluated = Future[tuple[PositionBatch, EvaluationBatch]]
"""Gets the encoded positions and their evaluations, NoEvaluatorError or PipelineError."""


class PooledEvaluation:
    """The current positions of some games: one batch among those of the pool's searches, and run like one of
    them. Belongs to the pool's thread."""

    can_go_on = False

    def __init__(self, evaluator: PooledEvaluator[Any], games: Sequence[Game], options: Options) -> None:
        self.future: Evaluated = Future()
        self.control = SearchControl()
        self.failure: PipelineError | NoEvaluatorError | NetworkChangedError | None = None
        self.search = self
        self.network = EvaluatorSettings.of(options).network
        self.identity = ""
        self._evaluator = evaluator
        self._games = games
        self._history_fill = cast("HistoryFill", options.history_fill)
        self._batch: PositionBatch | None = None

    @property
    def watched(self) -> bool:
        """Whether it waits for an evaluator to come up."""
        return self._batch is None

    def must_be_looked_at(self, _now: float) -> bool:
        """Whether an evaluator may have come up."""
        return True

    def waits_for(self, batch: Batch | PositionBatch) -> bool:
        """Whether a batch is still wanted."""
        return batch is self._batch and not self.future.done()

    def apply(self, batch: Batch | PositionBatch, evaluation: EvaluationBatch) -> bool:
        """Take the evaluations of the batch; False if it is not wanted any more."""
        if self._batch is None or not self.waits_for(batch):
            return False
        self.future.set_result((self._batch, evaluation))
        return True

    def advance(self, _searches: int, _processes: int) -> bool:
        """Send the batch, encoded again if the network has changed; False when the future has its result."""
        try:
            if isinstance(self.failure, NetworkChangedError):
                self._batch = self.failure = None
            if self.failure is not None:
                raise self.failure
            if self.control.stopped and not self.future.done():
                raise NoEvaluatorError("the pool is closed")
            if self._batch is None and (offers := self._evaluator.offers(self.network)):
                network = offers[0].network
                self._batch, _ = encode_games(
                    self._games, input_format=network.input_format, history_fill=self._history_fill
                )
                self.identity = network.identity
                self._evaluator.add(self, self._batch)
        except Exception as error:  # A fault of this batch must not end the others.
            self.future.set_exception(error)
        return not self.future.done()

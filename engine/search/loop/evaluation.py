# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluation of positions by the network alone, in a pool."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from math import inf
from typing import Any, cast

from engine._core import Batch, Game, Tree
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError
from engine.evaluation.link.encoding import HistoryFill, encode_games
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.send.pooled import PooledEvaluator
from engine.options import Options
from engine.search.control import SearchControl
from protocol.batch import EvaluationBatch, PositionBatch

Evaluated = Future[tuple[PositionBatch, EvaluationBatch]]
"""Result: the encoded positions and their evaluations; or NoEvaluatorError, or PipelineError."""


class PooledEvaluation:
    """One batch with the current positions of some games, which the pool runs like a search. Only the pool's
    thread may use it."""

    can_continue = in_flight = False
    owner = ""
    target_ms: float | None = None

    def __init__(self, evaluator: PooledEvaluator[Any], games: Sequence[Game], options: Options) -> None:
        self.future: Evaluated = Future()
        self.future.add_done_callback(self._ended)
        self.control = SearchControl()
        self.due_at = inf
        self.failure: PipelineError | NoEvaluatorError | NetworkChangedError | None = None
        self.search = self
        self.network = EvaluatorSettings.of(options).network
        self.identity = ""
        self.tree: Tree | None = None
        self._evaluator = evaluator
        self._games = games
        self._history_fill = cast("HistoryFill", options.history_fill)
        self._batch: PositionBatch | None = None

    def _ended(self, future: Evaluated) -> None:
        if future.cancelled():  # By any thread: the loop forgets it.
            self.control.on_change()

    def burst(self, _patience: float, _interrupt: int) -> str | None:
        """Return None: it has one batch."""
        return None

    def take_back(self) -> None:
        """Do nothing: the core has no batch of it."""

    def record_lateness(self, _late_ms: float) -> None:
        """Do nothing: it has no clock."""

    def waits_for(self, batch: Batch | PositionBatch) -> bool:
        """Return True if it still waits for a batch."""
        return batch is self._batch and not self.future.done()

    def apply(self, batch: Batch | PositionBatch, evaluation: EvaluationBatch) -> bool:
        """Set the result; return False if the batch is no longer wanted."""
        if self._batch is None or not self.waits_for(batch):
            return False
        if not self.future.set_running_or_notify_cancel():
            return False
        self.future.set_result((self._batch, evaluation))
        return True

    def advance(self, _searches: int, _processes: int) -> bool:
        """Send the batch, encoded again after a network change; return False once the future is done."""
        if self.future.done():
            return False
        try:
            if isinstance(self.failure, NetworkChangedError):
                self._batch = self.failure = None
            if self.failure is not None:
                raise self.failure
            if self.control.stopped:
                raise NoEvaluatorError("the pool is closed")
            if self._batch is None and (offers := self._evaluator.offers(self.network)):
                network = offers[0].network
                self._batch, _ = encode_games(
                    self._games, input_format=network.input_format, history_fill=self._history_fill
                )
                self.identity = network.identity
                self._evaluator.add(self, self._batch)
        except Exception as error:  # An error in this batch must not end the others.
            if self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)
        return not self.future.done()

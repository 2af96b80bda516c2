# SPDX-License-Identifier: GPL-3.0-or-later
"""One move or analysis of a pool, from its first step to its report."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from time import perf_counter

from engine._core import Tree
from engine.evaluation.balancing.pooled import PooledEvaluator, PooledPipeline
from engine.evaluation.connection.process import EvaluatorSettings
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError
from engine.search.batching import BatchSizes, Device
from engine.search.control import SearchControl
from engine.search.driver import Search
from engine.search.player import NetworkSearch, Pause, Player
from engine.search.report import Report
from engine.search.task import SearchTask


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer of a running search.

    seconds: time from the start to the first call. look: called in the pool's thread with the search and its
    tree; must be quick. It returns the time of the next call, in perf_counter seconds.
    """

    seconds: float
    look: Callable[[Search, Tree], float]


class PooledSearch:
    """The steps of one task (engine/search/player.py). Only the pool's thread may use it.

    The pool calls `advance` after an answer, or if `must_be_looked_at` returns True. A search only calls its
    evaluator. future: gets the report.
    """

    def __init__(
        self,
        evaluator: PooledEvaluator[PooledSearch],
        player: Player,
        task: SearchTask,
        prepare: Callable[[Tree], None] | None,
        inspect: Callable[[Tree], None] | None,
        observer: Observer | None = None,
        *,
        play: bool = False,
    ) -> None:
        """prepare, inspect: called with the tree just before and just after the search. play: see
        Player.steps."""
        self.future: Future[Report] = Future()
        self.control = SearchControl(pondering=task.limits.ponder)
        self._evaluator = evaluator
        self._player = player
        self._steps = player.steps(task, self.control, play=play, evaluates_mates=True)
        self._step: Pause | NetworkSearch = Pause(0.0)
        self._prepare = prepare
        self._inspect = inspect
        self._observer = observer
        self._next_look = float("inf") if observer is None else task.started + observer.seconds
        self._prepared: Tree | None = None
        self._pipeline: PooledPipeline[PooledSearch] | None = None
        self._search: Search | None = None

    def known(self) -> bool:
        """Take the first step. Return True if that gave the report, so that no search is needed."""
        try:
            self._step = next(self._steps)
        except StopIteration as end:
            self.future.set_result(end.value)
            return True
        return False

    @property
    def watched(self) -> bool:
        """True if other events than an answer may advance it: a new evaluator, the clock, the observer, or a
        timeout after `stop`."""
        search = self._search
        waits = search is None or search.wakes_at is not None
        return waits or self._observer is not None or self.control.stopped

    @property
    def can_go_on(self) -> bool:
        """True if it waits for nothing: it looks for a mate, no collected visit needed an evaluation, or its
        batches were rejected."""
        if isinstance(self._step, Pause):
            return self._step.until <= perf_counter()
        search, pipeline = self._search, self._pipeline
        if search is None or pipeline is None:
            return False
        return pipeline.failure is not None or (not pipeline.in_flight and not search.idle)

    def must_be_looked_at(self, now: float) -> bool:
        """Return True if an evaluator, the clock or the observer may require `advance`. now: perf_counter
        seconds."""
        if self.control.stopped:
            return True
        if isinstance(self._step, Pause):
            return now >= self._step.until
        if self._search is None or now >= self._next_look:
            return True
        wakes_at = self._search.wakes_at
        return wakes_at is not None and now >= wakes_at

    def advance(self, searches: int, processes: int) -> bool:
        """Advance the task. Return False once the future has its result. searches, processes: how many share
        the evaluators."""
        try:
            while True:
                report = None
                if isinstance(self._step, NetworkSearch):
                    report = self._advance_search(self._step, searches, processes)
                    if report is None:
                        return True
                elif self._step.until > perf_counter() and not self.control.stopped:
                    return True
                self._step = self._steps.send(report)
                if isinstance(self._step, Pause):
                    return True  # The mate search takes one slice for each call.
        except StopIteration as end:
            self.future.set_result(end.value)
        except Exception as error:  # An error in this search must not end the others.
            if self._pipeline is not None:
                self._pipeline.abandon()
            self.future.set_exception(error)
        return False

    def _advance_search(self, step: NetworkSearch, searches: int, processes: int) -> Report | None:
        """Advance the network's search, and restart it after a network change. Return its report at its end.

        If the evaluator fails, that is the result so far with the reason, as in a single search. Raises
        PipelineError and NoEvaluatorError if the search has not begun.
        """
        failure: Exception | None = None
        try:
            if self._pipeline is not None and isinstance(self._pipeline.failure, NetworkChangedError):
                self._pipeline.abandon()
                self._search = self._pipeline = None
            if self._search is None and not self._begin(step, searches, processes):
                return None
            assert self._search is not None and self._pipeline is not None
            failure = self._pipeline.failure
            if failure is None and self._search.advance():
                self._let_observe()
                return None
        except (PipelineError, NoEvaluatorError) as error:
            if self._search is None:
                raise
            failure = error
        assert self._pipeline is not None and self._prepared is not None
        report = replace(self._search.finish(), network=self._pipeline.identity)
        self._search = self._pipeline = None
        if self._inspect is not None and not step.secondary:
            self._inspect(self._prepared)
        self._evaluator.searches += 1
        if failure is None:
            return report
        self._evaluator.log(f"search ended early: {failure}")
        return replace(report, ended_early=str(failure))

    def _begin(self, step: NetworkSearch, searches: int, processes: int) -> bool:
        """Create the search; return False while there is no evaluator."""
        task, evaluator = step.task, self._evaluator
        key = EvaluatorSettings.of(task.options).network
        offers = evaluator.offers(key)
        if not offers:
            if self.control.stopped:
                raise NoEvaluatorError("stopped before the evaluator was ready")
            return False
        network = offers[0].network
        tree = self._player.tree.prepared_for(task, network)
        self._player.tree.set_root(task)
        task = self._player.tree.with_tablebase_moves(self._player.searched_by(task, network.identity))
        if self._prepare is not None and not step.secondary:
            self._prepare(tree)
        self._prepared = tree
        devices = [
            Device(each.network.recommended_batch, each.max_batch, each.network.curve) for each in offers
        ]
        # One device computes each batch of a single search.
        device = Device.together(devices) if searches > 1 else max(devices, key=lambda each: each.rate)
        sizes = BatchSizes.pooled(device, task.options, task.limits, searches, processes)
        self._pipeline = PooledPipeline(
            self, tree, evaluator, key, network.identity, sizes.capacity, alone=searches == 1
        )
        self._search = Search(tree, self._pipeline, task, sizes, control=self.control, log=evaluator.log)
        return True

    def _let_observe(self) -> None:
        """Call the observer, if it is time."""
        if self._observer is not None and perf_counter() >= self._next_look:
            assert self._search is not None and self._prepared is not None
            self._next_look = self._observer.look(self._search, self._prepared)

# SPDX-License-Identifier: GPL-3.0-or-later
"""One search of a pool, from the wait for its network to its report."""

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
from engine.search.limits import Limits
from engine.search.mate import MateSearch
from engine.search.report import Report
from engine.search.task import SearchTask
from engine.search.tree import SearchTree


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer of a running search.

    seconds: time from the start to the first call. look: called in the pool's thread with the search and its
    tree; must be quick. It returns the time of the next call, in perf_counter seconds.
    """

    seconds: float
    look: Callable[[Search, Tree], float]


class PooledSearch:
    """One search: wait for its network, then advance until it is over. Only the pool's thread may use it.

    The pool calls `advance` after an answer, or if `must_be_looked_at` returns True. The search only calls
    its evaluator. future: gets the report.
    """

    def __init__(
        self,
        evaluator: PooledEvaluator[PooledSearch],
        tree: SearchTree,
        task: SearchTask,
        prepare: Callable[[Tree], None] | None,
        inspect: Callable[[Tree], None] | None,
        observer: Observer | None = None,
    ) -> None:
        """prepare, inspect: called with the tree just before and just after the search."""
        self.future: Future[Report] = Future()
        self.control = SearchControl(pondering=task.limits.ponder)
        self.failure: Exception | None = None
        self._evaluator = evaluator
        self._tree = tree
        self._task = task
        self._prepare = prepare
        self._inspect = inspect
        self._observer = observer
        self._next_look = float("inf") if observer is None else task.started + observer.seconds
        self._prepared: Tree | None = None
        self._pipeline: PooledPipeline[PooledSearch] | None = None
        self._search: Search | None = None
        wanted = task.limits.mate is not None and not task.limits.infinite
        self._mate_search = MateSearch(task, self.control) if wanted else None
        self._mate: Report | None = None

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
        if self._mate_search is not None:
            return True
        search, pipeline = self._search, self._pipeline
        if search is None or pipeline is None:
            return False
        return pipeline.failure is not None or (not pipeline.in_flight and not search.idle)

    def must_be_looked_at(self, now: float) -> bool:
        """Return True if an evaluator, the clock or the observer may require `advance`. now: perf_counter
        seconds."""
        if self._search is None or self.control.stopped or now >= self._next_look:
            return True
        wakes_at = self._search.wakes_at
        return wakes_at is not None and now >= wakes_at

    def advance(self, searches: int, processes: int) -> bool:
        """Advance the search, and restart it after a network change. Return False once the future has its
        result. searches, processes: how many share the evaluators."""
        try:
            if self._mate_search is not None and self._advance_mate_search(self._mate_search):
                return True
            if self._pipeline is not None and isinstance(self._pipeline.failure, NetworkChangedError):
                self._pipeline.abandon()
                self._search = self._pipeline = None
            if self._search is None and not self._begin(searches, processes):
                return True
            assert self._search is not None and self._pipeline is not None
            self.failure = self._pipeline.failure
            if self.failure is None and self._search.advance():
                self._let_observe()
                return True
        except (PipelineError, NoEvaluatorError) as error:
            self.failure = error
        except Exception as error:  # An error in this search must not end the others.
            self.failure = error
        self._end()
        return False

    def _advance_mate_search(self, search: MateSearch) -> bool:
        """Search a slice. Return False once it has ended.

        After a mate the network only evaluates the root, for the rest of the answer.
        """
        if search.advance():
            return True
        self._mate_search, self._mate = None, search.report()
        task = self._task = search.remaining_task()
        if self._mate is not None:
            self._task = replace(task, limits=Limits(nodes=1, search_moves=task.limits.search_moves))
        return False

    def _begin(self, searches: int, processes: int) -> bool:
        """Create the search; return False while there is no evaluator."""
        task, evaluator = self._task, self._evaluator
        key = EvaluatorSettings.of(task.options).network
        offers = evaluator.offers(key)
        if not offers:
            if self.control.stopped:
                raise NoEvaluatorError("stopped before the evaluator was ready")
            return False
        network = offers[0].network
        tree = self._tree.prepared_for(task, network)
        self._tree.set_root(task)
        task = self._tree.with_tablebase_moves(task)
        if self._prepare is not None:
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

    def _end(self) -> None:
        search = self._search
        if search is None:
            self.future.set_exception(self.failure or NoEvaluatorError("the search did not begin"))
            return
        try:
            identity = "" if self._pipeline is None else self._pipeline.identity
            report = replace(search.finish(), network=identity)
            if (mate := self._mate) is not None:
                report = replace(report, best_move=mate.best_move, ponder=mate.ponder, lines=mate.lines)
            if self._inspect is not None and self._prepared is not None:
                self._inspect(self._prepared)
        except Exception as error:
            self.future.set_exception(error)
            return
        self._tree.tell_damage(self._evaluator.log)
        self._evaluator.searches += 1
        if self.failure is None:
            self.future.set_result(report)
        elif isinstance(self.failure, PipelineError | NoEvaluatorError):
            # As in a single search: the result so far is valid, and the report gives the reason for its end.
            self._evaluator.log(f"search ended early: {self.failure}")
            self.future.set_result(replace(report, ended_early=str(self.failure)))
        else:
            self.future.set_exception(self.failure)

"""One search of a pool, from waiting for its network to its report."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from engine._core import Tree
from engine.evaluation.errors import NoEvaluatorError, PipelineError
from engine.evaluation.process import EvaluatorSettings
from engine.evaluation.shared import SharedEvaluator, SharedPipeline
from engine.search.batching import BatchSizes
from engine.search.control import SearchControl
from engine.search.driver import Search
from engine.search.report import Report
from engine.search.task import SearchTask
from engine.search.tree import SearchTree
from protocol.messages import best_rate

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo

POSITIONS_PER_GAME = 8
"""Positions that one game contributes to a device batch, as a rule: more of them in flight weaken its search,
since they are chosen before what they could learn from each other is known."""

STEPS_PER_SECOND = 800
"""Steps (an answer taken, more positions collected) of all searches of a pool together, at most: each costs
some 70 µs of processor time, which a CPU backend lacks."""

MAX_POSITIONS_PER_STEP = 16
"""For the sake of fewer steps on fast devices; see POSITIONS_PER_GAME."""

MAX_FILLED = 128
"""Positions that a search sends at a time with those that it looks ahead to. They do not weaken it, but the
more there are, the fewer of them it wants in the end. 400 nodes with the shipped network in steps of 33, the
tree dropped before each move, are 13.8 steps and 272 positions; filled up to 33 they are 10.3 and 279, up to
66 7.2 and 312, up to 100 6.7 and 365. 64 games at 400 nodes finished 1,120 searches a second on an H200
without it, 1,520 when filled up to 64, 1,710 up to 96 and 1,720 up to 128."""

FAST_DEVICE = 40_000
"""Positions per second that a process feeds a device with if its searches do not look ahead, as one of many.
A slower device has enough to do, and what is looked ahead to would take the place of what a search wants."""

LARGEST_STEPS, LARGE_TREE = 3, 32
"""Where searches look ahead, those whose tree has LARGE_TREE visits for each position of a step send so many
times as many that they want. On an H200 64 games at 4,000 nodes finish 266 moves per second with steps of 99
in large trees, 245 with 66 and 208 with 33. (Of ten positions nine have the same best move as a sequential
search with steps of up to 128 at the sixteenth part of the visits, as they have with 33.)"""

FEW_POSITIONS = 4
"""So many at a time weaken no search: it begins with as many."""

FEW_SEARCHES_POSITIONS = 64
"""Few searches send FEW_POSITIONS each until they are so many together, or each device batch and each request
would carry one or two."""


def positions_per_step(network: NetworkInfo, searches: int) -> int:
    """How many positions each of so many searches sends at a time.

    Together they are to keep two batches of the recommended size on their way, one at work and one waiting. A
    longer queue gains nothing: it delays answers and weakens searches. Only where that would mean too many
    steps, or too small ones, are they larger.
    """
    best = network.recommended_batch
    if searches < 2:
        return best
    fair = ceil(2 * best / searches)
    few = min(FEW_POSITIONS, ceil(FEW_SEARCHES_POSITIONS / searches))
    least = min(MAX_POSITIONS_PER_STEP, max(few, ceil(best_rate(network.curve) / STEPS_PER_SECOND)))
    return max(1, min(best, max(fair, least)))


def filled_step(network: NetworkInfo, searches: int, processes: int) -> int:
    """How many positions each of so many searches in so many processes sends at a time, with those that it
    looks ahead to; 0 if it does not look ahead.

    A search begins with few positions, and 64 of some hundred nodes each do not come to the two batches that
    keep a fast device busy. So each looks ahead, until they are eight on paper: half of the positions are
    with the searches at any time, and steps are half as large on average.
    """
    if searches < 2 or best_rate(network.curve) < FAST_DEVICE * processes:
        return 0
    return min(ceil(8 * network.recommended_batch / searches), MAX_FILLED)


def batch_sizes(
    task: SearchTask, network: NetworkInfo, client: EvaluatorClient, searches: int, processes: int
) -> BatchSizes:
    """Positions per batch of one of so many searches in so many processes."""
    looks_ahead = task.options.hash > 0 and not task.options.minibatch_size
    filled = min(filled_step(network, searches, processes), client.max_batch) if looks_ahead else 0
    best = min(positions_per_step(network, searches), client.max_batch)
    return BatchSizes(
        best,
        client.curve,
        min(LARGEST_STEPS * best, filled),
        filled,
        LARGE_TREE,
        fixed=task.options.minibatch_size,
    )


class PooledSearch:
    """One search: waits for its network, then advances until it is over. Belongs to the pool's thread.

    The pool calls `advance` when an answer has come or `must_be_looked_at` says so; the search calls nobody
    but its evaluator. future: gets the report.
    """

    def __init__(
        self,
        evaluator: SharedEvaluator[PooledSearch],
        tree: SearchTree,
        task: SearchTask,
        prepare: Callable[[Tree], None] | None,
        inspect: Callable[[Tree], None] | None,
    ) -> None:
        """prepare, inspect: get the tree just before the search and just after it."""
        self.future: Future[Report] = Future()
        self.control = SearchControl(pondering=task.limits.ponder)
        self.failure: Exception | None = None
        self._evaluator = evaluator
        self._tree = tree
        self._task = task
        self._prepare = prepare
        self._inspect = inspect
        self._prepared: Tree | None = None
        self._pipeline: SharedPipeline[PooledSearch] | None = None
        self._search: Search | None = None

    @property
    def watched(self) -> bool:
        """Whether something else than an answer may move it on: an evaluator that comes up, or the clock."""
        return self._search is None or self._search.wakes_at is not None

    @property
    def can_go_on(self) -> bool:
        """Whether it waits for nothing: all that it collected was answered on the spot."""
        search, pipeline = self._search, self._pipeline
        return search is not None and pipeline is not None and not pipeline.in_flight and not search.idle

    def must_be_looked_at(self, now: float) -> bool:
        """Whether an evaluator may have come up or the clock may end it. now: perf_counter seconds."""
        wakes_at = None if self._search is None else self._search.wakes_at
        return wakes_at is None or now >= wakes_at

    def advance(self, searches: int, processes: int) -> bool:
        """Go on; False when it is over and the future has its result. searches: how many are under way, in so
        many processes."""
        try:
            if self._search is None and not self._begin(searches, processes):
                return True
            assert self._search is not None and self._pipeline is not None
            self.failure = self._pipeline.failure
            if self.failure is None and self._search.advance():
                return True
        except (PipelineError, NoEvaluatorError) as error:
            self.failure = error
        except Exception as error:  # A fault of this search must not end the others.
            self.failure = error
        self._end()
        return False

    def _begin(self, searches: int, processes: int) -> bool:
        """Set the search up; False while there is no evaluator."""
        task, evaluator = self._task, self._evaluator
        key = EvaluatorSettings.of(task.options).network
        network, client = evaluator.network(key), evaluator.client
        if network is None or client is None:
            if self.control.stopped:
                raise NoEvaluatorError("stopped before the evaluator was ready")
            return False
        tree = self._tree.prepared(task.options, network.input_format, network.content_hash)
        self._tree.set_root(task)
        if self._prepare is not None:
            self._prepare(tree)
        self._prepared = tree
        sizes = batch_sizes(task, network, client, searches, processes)
        capacity = min(sizes.capacity, client.max_batch)
        if searches > 1:  # While one waits for its answer, the device is busy with the others'.
            task = replace(task, options=task.options.changed(batches_in_flight=1))
        self._pipeline = SharedPipeline(self, tree, evaluator, key, network.content_hash, capacity)
        self._search = Search(tree, self._pipeline, task, sizes, control=self.control, log=evaluator.log)
        return True

    def _end(self) -> None:
        search = self._search
        if search is None:
            self.future.set_exception(self.failure or NoEvaluatorError("the search did not begin"))
            return
        try:
            report = search.finish()
            if self._inspect is not None and self._prepared is not None:
                self._inspect(self._prepared)
        except Exception as error:
            self.future.set_exception(error)
            return
        self._evaluator.searches += 1
        if self.failure is None:
            self.future.set_result(report)
        elif isinstance(self.failure, PipelineError | NoEvaluatorError):
            # As in a search of its own: what was found so far is good, with a word on why it ended.
            self._evaluator.log(f"search ended early: {self.failure}")
            self.future.set_result(report)
        else:
            self.future.set_exception(self.failure)

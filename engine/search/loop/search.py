# SPDX-License-Identifier: GPL-3.0-or-later
"""One move or analysis, from its first step to its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Any

from engine._core import Tree
from engine.evaluation.errors import (
    EvaluatorLateError,
    NetworkChangedError,
    NoEvaluatorError,
    PipelineError,
)
from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings, NetworkKey
from engine.evaluation.send.pipeline import InstantPipeline, Pipeline
from engine.evaluation.send.pooled import PooledEvaluator
from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.evaluation.spread.upstream import Offer
from engine.search.control import SearchControl
from engine.search.loop.batching import BatchSizes, Speed
from engine.search.loop.driver import Search
from engine.search.player.player import NetworkSearch, Pause, Player
from engine.search.player.task import SearchTask
from engine.search.report import Report
from protocol.wire.messages import NetworkInfo


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer of a running search.

    seconds: time from the start to the first call. look: called in the pool's thread with the search and its
    tree; must be quick. It returns the time of the next call, in perf_counter seconds.
    """

    seconds: float
    look: Callable[[Search, Tree], float]


class InstantEvaluator:
    """Evaluates at random in this process, at once, to measure the search alone. batch: positions.

    log, searches: see PooledEvaluator.
    """

    network = NetworkInfo(name="in-process", content_hash="in-process", input_format=1)
    links: Sequence[EvaluatorLink] = ()

    def __init__(self, batch: int, log: Callable[[str], None]) -> None:
        self.log = log
        self.searches = 0
        self.max_batch = batch

    def retry(self) -> None:
        """Do nothing: it is always ready."""

    def cancel_abandoned(self, _tree: Tree) -> None:
        """Do nothing: it owes no results."""

    def offers(self, _key: NetworkKey) -> Sequence[InstantEvaluator]:
        """Return this evaluator."""
        return [self]


class PooledSearch:
    """The steps of one task (engine/search/player/player.py). Only the thread of its loop may use it.

    The loop calls `advance` after an answer, after a change of `control` or of the evaluators, at `due_at`,
    or if `can_continue`. A search only calls its evaluator. future: gets the report. due_at: when the clock
    or a report may require `advance`, in perf_counter seconds; else it is infinite. owner: its player's.
    """

    owner = ""

    def __init__(
        self,
        evaluator: PooledEvaluator[Any] | InstantEvaluator,
        player: Player,
        task: SearchTask,
        *,
        control: SearchControl | None = None,
        play: bool = False,
        evaluates_mates: bool = True,
        keeps_time: bool = False,
        prepare: Callable[[Tree], None] | None = None,
        inspect: Callable[[Tree], None] | None = None,
        observer: Observer | None = None,
        on_report: Callable[[Report], None] | None = None,
        on_begin: Callable[[NetworkInfo, int], None] | None = None,
    ) -> None:
        """control: other threads may stop the search by it. play, evaluates_mates: see Player.steps.
        keeps_time: fail with EvaluatorLateError once the limits forbid to wait for an evaluator. prepare,
        inspect: called with the tree just before and just after the search of the move. on_report: receives
        its intermediate reports. on_begin: called with its network and the positions of the largest
        request."""
        self.future: Future[Report] = Future()
        self.control = control or SearchControl(pondering=task.limits.ponder)
        self.due_at = 0.0
        self._keeps_time = keeps_time
        self._evaluator = evaluator
        self._player = player
        self._steps = player.steps(task, self.control, play=play, evaluates_mates=evaluates_mates)
        self._step: Pause | NetworkSearch = Pause(0.0)
        self._prepare = prepare
        self._inspect = inspect
        self._observer = observer
        self._on_report = on_report
        self._on_begin = on_begin
        self._next_look = inf if observer is None else task.started + observer.seconds
        self._waited = False
        self._fills = True
        """False while bursts collect the batches."""
        self._ponders = False
        self._prepared: Tree | None = None
        self._pipeline: Pipeline | None = None
        self._search: Search | None = None

    def take_first_step(self) -> bool:
        """Take the first step. Return True if that gave the report, so that no search is needed."""
        try:
            self._step = next(self._steps)
        except StopIteration as end:
            self.future.set_result(end.value)
            return True
        return False

    @property
    def can_continue(self) -> bool:
        """True if it waits for nothing: it looks for a mate, no collected visit needed an evaluation, or its
        batches were rejected."""
        if isinstance(self._step, Pause):
            return self._step.is_over(self.control)
        search, pipeline = self._search, self._pipeline
        if search is None or pipeline is None:
            return False
        return pipeline.failure is not None or (self._fills and not pipeline.in_flight and not search.idle)

    @property
    def in_flight(self) -> bool:
        """True if it waits for evaluations."""
        return self._pipeline is not None and self._pipeline.in_flight > 0

    def advance(self, searches: int, processes: int) -> bool:
        """Advance the task. Return False once the future has its result. searches, processes: how many share
        the evaluators."""
        try:
            while True:
                report = None
                if isinstance(self._step, NetworkSearch):
                    report = self._advance_search(self._step, searches, processes)
                    if report is None:
                        break
                elif not self._step.is_over(self.control):
                    break
                self._step = self._steps.send(report)
                if isinstance(self._step, Pause):
                    break  # The mate search takes one slice for each call.
            self.due_at = self._next_due()
            return True
        except StopIteration as end:
            self.future.set_result(end.value)
        except Exception as error:  # An error in this search must not end the others.
            self.abandon()
            self.future.set_exception(error)
        return False

    def burst(self, patience: float, interrupt: int) -> str | None:
        """Let the core run this search, the only one, and return why it ended, or None if it cannot.
        patience: end of the longest wait, in perf_counter seconds."""
        search, pipeline = self._search, self._pipeline
        if search is None or not isinstance(pipeline, PooledPipeline) or pipeline.failure is not None:
            return None
        if search.idle:
            return None
        exchange = pipeline.lend()
        if exchange is None:
            unfilled, self._fills = not self._fills, True
            return "idle" if unfilled else None
        end = search.burst(exchange, self.due_at, patience, interrupt)
        if end not in ("time", "look"):
            pipeline.take_back()
        self._fills = end == "idle"
        return end

    def take_back(self) -> None:
        """Let Python use the connection."""
        if isinstance(self._pipeline, PooledPipeline):
            self._pipeline.take_back()

    def record_lateness(self, late_ms: float) -> None:
        """Record how late a wait returned."""
        self._player.keeper.lateness.record_lateness(late_ms)

    def abandon(self) -> None:
        """Take back the batches in flight, because the search ends by an error."""
        if self._pipeline is not None:
            self._pipeline.abandon()

    def _next_due(self) -> float:
        now = perf_counter()
        if isinstance(self._step, Pause):
            return self._step.until
        if self._search is None:
            return max(now, self._patient_until(self._step.task))
        return min(self._search.due_at(now), self._next_look)

    def _advance_search(self, step: NetworkSearch, searches: int, processes: int) -> Report | None:
        """Advance the network's search, and restart it after a network change. Return its report at its end.

        If the evaluator fails, that is the result so far with the reason. Raises PipelineError and
        NoEvaluatorError if the search has not begun.
        """
        failure: Exception | None = None
        if searches > 1:  # If another one has joined, the core may not collect its batches any more.
            self.take_back()
            self._fills = True
        if isinstance(self._pipeline, PooledPipeline):
            self._pipeline.alone = searches == 1
        try:
            if self._pipeline is not None and isinstance(self._pipeline.failure, NetworkChangedError):
                self._pipeline.abandon()
                self._search = self._pipeline = None
            if self._search is None and not self._begin(step, searches, processes):
                return None
            assert self._search is not None and self._pipeline is not None
            failure = self._pipeline.failure
            if self._ponders and not self.control.pondering:
                self._ponders = False
                self._set_target(step.task)
            if failure is None and self._search.advance(fills=self._fills):
                if self._observer is not None and perf_counter() >= self._next_look:
                    assert self._prepared is not None
                    self._next_look = self._observer.look(self._search, self._prepared)
                return None
        except (PipelineError, NoEvaluatorError) as error:
            if self._search is None:
                raise
            failure = error
        assert self._pipeline is not None and self._prepared is not None
        report = self._search.finish()
        if isinstance(self._pipeline, PooledPipeline):
            report = replace(report, network=self._pipeline.identity)
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
        task, evaluator, player = step.task, self._evaluator, self._player
        if not self._waited:
            evaluator.retry()
        key, offers = offers_for(evaluator, player, task)
        if not offers:
            self._waited = True
            if self.control.stopped:
                raise EvaluatorLateError("the search was stopped before the evaluator was ready")
            if (now := perf_counter()) >= self._patient_until(task):
                raise EvaluatorLateError(f"the evaluator was not ready within {now - task.started:.1f} s")
            return False
        if self._waited and task.limits.clock is None:
            # No clock runs while an evaluator starts: the time for the move begins now.
            task = replace(task, started=perf_counter())
        network = offers[0].network
        if self._on_begin is not None and not step.secondary:
            self._on_begin(network, offers[0].max_batch)
        tree = player.tree.prepared_for(task, network)
        evaluator.cancel_abandoned(tree)
        player.tree.set_root(task)
        task = player.tree.with_tablebase_moves(player.searched_by(task, network.identity))
        if self._prepare is not None and not step.secondary:
            self._prepare(tree)
        self._prepared = tree
        devices = [
            Speed(each.network.recommended_batch, each.max_batch, each.network.curve) for each in offers
        ]
        # One device computes each batch of a single search.
        device = Speed.together(devices) if searches > 1 else max(devices, key=lambda each: each.rate)
        sizes = BatchSizes.pooled(device, task.options, task.limits, searches, processes)
        if isinstance(evaluator, InstantEvaluator):
            self._pipeline = InstantPipeline(tree, sizes.rule.capacity)
        else:
            self._pipeline = PooledPipeline(self, tree, evaluator, key, network.identity, sizes.rule)
            self._pipeline.alone = searches == 1
        self._fills = searches > 1 or not isinstance(evaluator, PooledEvaluator)
        self._ponders = self.control.pondering
        if not self._ponders:
            self._set_target(task)
        self._search = Search(
            tree,
            self._pipeline,
            task,
            sizes,
            control=self.control,
            on_report=None if step.secondary else self._on_report,
            log=evaluator.log,
        )
        return True

    def _set_target(self, task: SearchTask) -> None:
        """Let the requests ask for the latency that the clock needs. While pondering, others come first."""
        if isinstance(self._pipeline, PooledPipeline):
            self._pipeline.target_ms = task.limits.target_ms(task.game.turn)

    def _patient_until(self, task: SearchTask) -> float:
        """Return until when the task's limits allow to wait for an evaluator, in perf_counter seconds."""
        limits, overhead_ms = task.limits, task.options.move_overhead_ms
        began = task.started if self.control.clock_started is None else self.control.clock_started
        if self.control.pondering or not self._keeps_time:
            return inf
        clock = limits.clock.of(task.game.turn) if limits.clock is not None else None
        if clock is not None:  # Even a move without evaluations must not lose on time.
            return began + max(0.0, clock[0] - overhead_ms) / 2000
        connected = any(link.was_connected for link in self._evaluator.links)
        if limits.movetime_ms is not None and connected:  # The first start is not counted.
            return began + (limits.movetime_ms + overhead_ms) / 1000
        return inf


def offers_for(
    evaluator: PooledEvaluator[Any] | InstantEvaluator, player: Player, task: SearchTask
) -> tuple[NetworkKey, Sequence[Offer | InstantEvaluator]]:
    """Return the key of a task's network, and the evaluators that serve it; none without a connection.

    If a level's own network is missing, that is the player's network. Raises NoEvaluatorError.
    """
    key, usual = (EvaluatorSettings.of(options).network for options in (task.options, player.options))
    if key == usual:
        return key, evaluator.offers(key)
    missing = ""
    try:
        return key, evaluator.offers(key)
    except NoEvaluatorError as error:
        missing = str(error)
    offers = evaluator.offers(usual)
    if offers:
        player.log_once(f"{task.options.weights} is missing, so {offers[0].network.name} plays: {missing}")
    return usual, offers

"""The driver of a search: collect a batch, submit it, receive, apply, check the limits. No tree logic.

Python runs here once per batch, never per node; the tree releases the interpreter lock while it works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter

from engine._core import ChildInfo, RootInfo, Tree
from engine._core import Line as TreeLine
from engine.evaluation.link import NoEvaluatorError
from engine.evaluation.pipeline import Pipeline, PipelineError
from engine.options import Options
from engine.search.clock import allocate
from engine.search.limits import Limits
from engine.search.move_choice import candidates, choose_move, temperature_at
from engine.search.report import Line, MoveStatistics, Report

POLL_MS = 10.0
"""Longest wait for a batch before the limits and `stop` are looked at again."""

REPORT_SECONDS = 0.2
"""Least time between two reports when something has changed."""

REPORT_ALWAYS_SECONDS = 1.0
"""Longest time between two reports."""

CHECK_SECONDS = 0.01
"""Time between two looks at the root's moves, which cost more than the counts."""

CHECK_VISITS_SHARE = 16
"""They are also looked at when the visits have grown by one part in this many: a fast search does much in
little time."""

STOP_GRACE_SECONDS = 0.1
"""How long a search that is stopped before anything has come back waits for its first evaluation."""

UNLIMITED_VISITS = 1 << 40

LARGE_TREE = 64
"""A tree with this many visits for each position of the best batch is large (BatchSizes.in_tree)."""

LARGE_BATCH_MS = 100.0
"""Longest time of the larger batches of large trees."""


class SearchControl:
    """How other threads steer a search."""

    def __init__(self, *, pondering: bool = False) -> None:
        self._stop = threading.Event()
        self._ponder_hit: float | None = None
        self._pondering = pondering

    def stop(self) -> None:
        """End the search as soon as possible."""
        self._stop.set()

    def ponder_hit(self, at: float | None = None) -> None:
        """The expected move was played: the clock runs, from `at` (perf_counter seconds) or from now."""
        self._ponder_hit = perf_counter() if at is None else at
        self._pondering = False

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def pondering(self) -> bool:
        return self._pondering

    @property
    def clock_started(self) -> float | None:
        """When `ponder_hit` came, None if it did not."""
        return self._ponder_hit

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until `stop`."""
        self._stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """What the driver must know about the root. legal_moves: those to choose from, in UCI notation."""

    turn: str
    fullmove: int
    legal_moves: Sequence[str]


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Positions per batch. best: what the device computes efficiently. curve: measured (batch, ms),
    ascending. largest: for large trees, which have `large_tree` visits for each of `best`; best if 0.
    filled: a batch that would have fewer looks ahead for the others (Tree.collect)."""

    best: int
    curve: Sequence[tuple[int, float]] = ()
    largest: int = 0
    filled: int = 0
    large_tree: int = LARGE_TREE

    def in_tree(self, visits: int) -> int:
        """The batch for a tree with so many visits. Where the positions in flight are few among them anyway,
        larger batches do the search no harm, and what a batch costs besides the device is paid more rarely.
        """
        return max(self.best, self.largest) if visits >= self.large_tree * self.best else self.best

    @classmethod
    def of(cls, best: int, most: int, curve: Sequence[tuple[int, float]]) -> BatchSizes:
        """For an evaluator that recommends `best` and takes `most`: twice as many for large trees, if that
        is quick enough."""
        best = min(best, most)
        size, ms = next((point for point in curve if point[0] >= 2 * best), curve[-1] if curve else (1, 0.0))
        quick = ms * max(1.0, 2 * best / size) <= LARGE_BATCH_MS
        return cls(best, curve, min(2 * best, most) if quick else best)

    def fitting(self, milliseconds: float) -> int:
        """The largest batch that is computed in that time; at least 1."""
        most = max(self.best, self.largest, self.filled)
        sizes = [size for size, ms in self.curve if ms <= milliseconds]
        return most if not self.curve else max(1, min(most, max(sizes, default=1)))


class Search:
    """One search from the tree's root, run by one thread."""

    def __init__(
        self,
        tree: Tree,
        pipeline: Pipeline,
        position: SearchPosition,
        limits: Limits,
        options: Options,
        sizes: BatchSizes,
        *,
        control: SearchControl | None = None,
        started: float | None = None,
        on_report: Callable[[Report], None] | None = None,
        log: Callable[[str], None] = lambda text: None,
        random: Random | None = None,
    ) -> None:
        """started: when the clock began to run, in perf_counter seconds; now if None. random: chooses the
        move when the options set a temperature."""
        self._tree = tree
        self._pipeline = pipeline
        self._position = position
        self._limits = limits
        self._options = options
        self._sizes = sizes
        self._control = control or SearchControl(pondering=limits.ponder)
        self._started = perf_counter() if started is None else started
        self._on_report = on_report
        self._log = log
        self._random = random
        self._soft: float | None = None
        self._hard: float | None = None
        self._first: float | None = None
        self._deadlines_set = False
        self._full_noted = False
        self._next_check = 0.0
        self._next_check_visits = 0
        self._next_report = self._started + REPORT_SECONDS
        self._last_report = self._started
        self._last_shown: tuple[int, str | None] = (0, None)
        self.idle = False

    def run(self) -> Report:
        """Search until a limit is met, stopped, or the evaluator is gone for good. Always returns a report,
        with a legal best move if there is a legal move."""
        try:
            while self.advance():
                if self._pipeline.in_flight:
                    self._pipeline.poll(self.patience_ms())
                elif self.idle:
                    self._control.wait(POLL_MS / 1000)
        except (PipelineError, NoEvaluatorError) as error:
            self._log(f"search ended early: {error}")
        finally:
            report = self.finish()
        return report

    def advance(self) -> bool:
        """Do what can be done without waiting: look at the limits, gather batches and submit them.

        False when the search is over; then call `finish`. While it is True the pipeline delivers evaluations,
        or `idle` says that there is nothing left to search but nobody has told the search to stop. Raises
        PipelineError and NoEvaluatorError, after which only `finish` may be called.
        """
        tree, pipeline = self._tree, self._pipeline
        now = perf_counter()
        info = tree.root_info()
        if self._should_stop(now, info):
            return False
        answered = 0  # visits since `info` that needed no evaluation
        progressed = False
        while pipeline.in_flight < self._options.batches_in_flight:
            wanted = self._max_visits(info) - answered
            if wanted <= 0:
                break
            batch = pipeline.take()
            target = min(self._target(info, now), batch.capacity)
            result = tree.collect(batch, target, wanted, self._ahead(target, now))
            answered += result.visits_done
            if not batch.size:
                tree.cancel(batch)  # Collisions only, or all was answered on the spot.
                pipeline.give_back(batch)
                progressed |= result.visits_done > 0
                break
            progressed = True
            pipeline.submit(batch)
            if not pipeline.in_flight:
                break
        self.idle = not progressed and not pipeline.in_flight
        return not self.idle or self._limits.unbounded or self._control.pondering

    @property
    def wakes_at(self) -> float | None:
        """When time alone may end the search, in perf_counter seconds; None if it cannot."""
        return self._soft if self._soft is not None else self._hard

    def finish(self) -> Report:
        """Take back what is in flight and report."""
        self._pipeline.abandon()
        report = self.report()
        if report.full:
            self._note_full()
        return self._with_chosen_move(report)

    def _with_chosen_move(self, report: Report) -> Report:
        """The report with the move that is played, where that need not be the best one."""
        temperature = temperature_at(self._options, self._position.fullmove - 1)
        if temperature <= 0 or not report.lines:
            return report
        children = self._tree.children()
        move = choose_move(candidates(children), self._options, temperature, self._random or Random())
        if move == report.best_move:
            return report
        line = next((line for line in self._tree.lines(len(children)) if line.moves[0] == move), None)
        reply = line.moves[1] if line is not None and len(line.moves) > 1 else None
        return replace(report, best_move=move, ponder=reply)

    def report(self) -> Report:
        """The search as it stands."""
        info = self._tree.root_info()
        lines = tuple(_line(line) for line in self._tree.lines(self._options.multipv))
        moves = lines[0].moves if lines else tuple(self._position.legal_moves[:1])
        return Report(
            best_move=moves[0] if moves else None,
            ponder=moves[1] if len(moves) > 1 else None,
            lines=lines,
            nodes=info.visits,
            playouts=info.playouts,
            depth=round(info.mean_depth),
            selective_depth=info.max_depth,
            seconds=perf_counter() - self._started,
            hashfull=info.hashfull,
            cache_hits=info.cache_hits,
            evaluations=self._pipeline.evaluations,
            batches=self._pipeline.batches,
            full=info.full,
            statistics=(
                tuple(_statistics(child) for child in self._tree.children())
                if self._options.verbose_move_stats
                else ()
            ),
        )

    # -- limits ------------------------------------------------------------------------------------------

    def _set_deadlines(self) -> None:
        """Fix the times to stop at, once the clock runs: at the start, or with `ponderhit`."""
        self._deadlines_set = True
        limits, options = self._limits, self._options
        start = self._started if self._control.clock_started is None else self._control.clock_started
        if limits.movetime_ms is not None:
            reserve = min(options.move_overhead_ms / 2, limits.movetime_ms * 0.05)
            self._soft = self._hard = self._first = start + (limits.movetime_ms - reserve) / 1000
        clock = limits.clock.of(self._position.turn) if limits.clock is not None else None
        if clock is not None and limits.clock is not None:
            remaining_ms, increment_ms = clock
            budget = allocate(
                remaining_ms,
                increment_ms,
                limits.clock.moves_to_go,
                overhead_ms=options.move_overhead_ms,
                slowmover=options.slowmover,
                fullmove=self._position.fullmove,
            )
            self._soft = min(self._soft or 1e18, start + budget.soft_ms / 1000)
            self._hard = min(self._hard or 1e18, start + budget.hard_ms / 1000)
            # A move without any evaluation is as good as lost: for the first one, risk more of the clock.
            self._first = max(self._hard, start + remaining_ms * 0.3 / 1000)

    def _should_stop(self, now: float, info: RootInfo) -> bool:
        control, limits = self._control, self._limits
        if control.stopped:
            return info.visits > 0 or not self._wait_for_first(now)
        if not self._deadlines_set and not control.pondering:
            self._set_deadlines()
        if now >= self._next_report:
            self._maybe_report(now, info)
        if info.full:
            self._note_full()
        if limits.infinite or control.pondering:
            return False
        if info.visits == 0:
            return self._first is not None and now >= self._first
        if self._hard is not None and now >= self._hard:
            return True
        if limits.nodes is not None and self._nodes(info) >= limits.nodes:
            return True
        if limits.depth is not None and info.mean_depth >= limits.depth:
            return True
        if limits.unbounded:
            return False
        if limits.clock is not None and len(self._position.legal_moves) == 1:
            return True
        if now < self._next_check and info.visits < self._next_check_visits:
            return False
        self._next_check = now + CHECK_SECONDS
        self._next_check_visits = info.visits + info.visits // CHECK_VISITS_SHARE + 1
        if info.full or info.proof is not None:
            return True
        if limits.mate is not None and self._mate_found(limits.mate):
            return True
        return self._time_is_used_up(now, info)

    def _note_full(self) -> None:
        if not self._full_noted:
            self._full_noted = True
            self._log("the tree is full: raise RamLimitMb to search on")

    def _wait_for_first(self, now: float) -> bool:
        """Whether a stopped search without any evaluation should still wait for one."""
        if self._first is None or self._first > now + STOP_GRACE_SECONDS or not self._deadlines_set:
            self._first, self._deadlines_set = now + STOP_GRACE_SECONDS, True
        return self._pipeline.in_flight > 0 and now < self._first

    def _mate_found(self, moves: int) -> bool:
        lines = self._tree.lines(1)
        mate = _line(lines[0]).mate if lines else None
        return mate is not None and 0 < mate <= moves

    def _time_is_used_up(self, now: float, info: RootInfo) -> bool:
        """Past the soft limit with a settled choice, or the second move cannot catch up any more."""
        past_soft = self._soft is not None and now >= self._soft
        factor = self._options.smart_pruning_factor
        if not past_soft and (factor == 0 or self._options.multipv > 1):
            return False
        children = self._tree.children()
        if len(children) < 2:
            return past_soft
        first, second = sorted((child.visits for child in children), reverse=True)[:2]
        if past_soft:
            most_visited = max(children, key=lambda child: child.visits)
            rivals = [child for child in children if child.visits * 4 >= most_visited.visits]
            return max(rivals, key=lambda child: child.evaluation.q).move == most_visited.move
        left = UNLIMITED_VISITS
        if self._limits.nodes is not None:
            left = self._limits.nodes - self._nodes(info)
        if self._soft is not None:
            elapsed = now - self._started
            if info.playouts < 32 or elapsed < 0.02:
                return False
            left = min(left, int(info.playouts / elapsed * (self._soft - now)))
        return first - second > left / factor

    def _nodes(self, info: RootInfo) -> int:
        """What a limit of nodes counts."""
        return info.playouts if self._options.nodes_as_playouts else info.visits

    def _max_visits(self, info: RootInfo) -> int:
        if self._limits.nodes is None or self._limits.infinite or self._control.pondering:
            return UNLIMITED_VISITS
        return self._limits.nodes - self._nodes(info) - self._pipeline.in_flight_positions

    def _target(self, info: RootInfo, now: float) -> int:
        """Positions to gather: the best size for the device, less in a small tree, where a batch is a large
        part of all visits and goes to worse moves, and less when it would not be back in time."""
        best = self._options.minibatch_size or self._sizes.in_tree(info.visits)
        target = min(best, max(4, info.visits // 4))
        return max(1, min(target, self._in_time(now)))

    def _ahead(self, target: int, now: float) -> int:
        """Positions to look ahead to, in a batch with a target of so many."""
        return max(0, min(self._sizes.filled, self._in_time(now)) - target)

    def _in_time(self, now: float) -> int:
        """The largest batch that comes back before the search must end."""
        if self._hard is None:
            return UNLIMITED_VISITS
        return self._sizes.fitting((self._hard - now) * 1000 / (self._pipeline.in_flight + 1))

    def patience_ms(self) -> float:
        """How long the next evaluation may be waited for before the limits must be looked at again."""
        if self._hard is None:
            return POLL_MS
        return max(0.2, min(POLL_MS, (self._hard - perf_counter()) * 1000))

    def _maybe_report(self, now: float, info: RootInfo) -> None:
        self._next_report = now + REPORT_SECONDS
        if self._on_report is None or info.visits == 0:
            return
        best = self._tree.lines(1)
        shown = (round(info.mean_depth), best[0].moves[0] if best else None)
        if shown != self._last_shown or now - self._last_report >= REPORT_ALWAYS_SECONDS:
            self._last_shown = shown
            self._last_report = now
            self._on_report(self.report())


def _line(line: TreeLine) -> Line:
    proof = line.proof
    return Line(
        moves=tuple(line.moves),
        visits=line.visits,
        q=line.evaluation.q,
        wdl=line.evaluation.wdl,
        moves_left=line.evaluation.m,
        prior=line.prior,
        mate=proof.value * ((proof.plies + 1) // 2) if proof is not None and proof.value else None,
    )


def _statistics(child: ChildInfo) -> MoveStatistics:
    return MoveStatistics(
        move=child.move,
        visits=child.visits,
        in_flight=child.in_flight,
        prior=child.prior,
        q=child.evaluation.q,
        d=child.evaluation.d,
        m=child.evaluation.m,
        u=child.exploration,
    )

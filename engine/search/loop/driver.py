# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a search: check the limits, collect batches and submit them. No tree logic.

This code runs once per batch, never per node. The tree releases the GIL while it works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from engine._core import Line as TreeLine
from engine._core import RootInfo, Tree, policy_index
from engine.evaluation.send.pipeline import Pipeline
from engine.search.control import SearchControl
from engine.search.loop.batching import BatchSizes
from engine.search.loop.stopping import UNLIMITED_VISITS, LimitWatch
from engine.search.player.move_choice import Candidate, choose_move, temperature_at
from engine.search.player.static_choice import static_lines
from engine.search.player.task import SearchTask
from engine.search.report import Line, MoveStatistics, Report
from engine.search.strength.levels import choose

if TYPE_CHECKING:
    from engine._core import Exchange

BURST_SECONDS = 0.1
"""Longest run of the search without the interpreter while answers arrive: Ctrl-C waits for its end."""

REPORT_SECONDS = 0.2
"""Minimum time between two reports if something has changed."""

REPORT_ALWAYS_SECONDS = 1.0
"""Longest time between two reports."""


class Search:
    """One search from the tree's root, by one thread, which calls `advance` until it returns False, and then
    `finish`.

    idle: True while the search has no work left and waits for `stop`.
    """

    def __init__(
        self,
        tree: Tree,
        pipeline: Pipeline,
        task: SearchTask,
        sizes: BatchSizes,
        *,
        control: SearchControl,
        on_report: Callable[[Report], None] | None = None,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """tree: has the task's position as its root."""
        self._tree = tree
        self._pipeline = pipeline
        self._task = task
        self._options = task.options
        self._rule = sizes.rule
        self._unbounded = task.limits.unbounded
        self._control = control
        self._watch = LimitWatch(tree, task, control)
        self._on_report = on_report
        self._log = log
        self._info = tree.root_info()
        self._full_noted = False
        self._only_decided = False
        self._next_report = task.started + REPORT_SECONDS
        self._last_report = task.started
        self._last_shown: tuple[int, str | None] = (0, None)
        self._first_batch_ms = 0.0
        self._depth = 0
        self.idle = False

    def advance(self, *, fills: bool = True) -> bool:
        """Check the limits, collect and submit batches, all without waiting. Return False if the search is
        over. fills: False if a burst follows, which collects batches.

        After True, the pipeline delivers evaluations or the search is `idle`.
        """
        now = perf_counter()
        self._info = info = self._tree.root_info()
        if not self._control.stopped:
            if not self._watch.has_deadlines:
                self._watch.set_deadlines(info)
            if now >= self._next_report or info.full:
                self._tell(now, info)
        if self._watch.is_over(now, info, self._pipeline.in_flight):
            return False
        self.idle = False
        if not fills:
            return True
        self._only_decided = False
        progressed = self._fill_pipeline(now, info)
        unbounded = self._unbounded or self._control.pondering
        # If all lines end in decided games, more visits are useless and should not occupy a core.
        self.idle = not self._pipeline.in_flight and (not progressed or (unbounded and self._only_decided))
        return not self.idle or unbounded

    def _fill_pipeline(self, now: float, info: RootInfo) -> bool:
        """Collect and submit batches until enough are in flight. Return False if there was nothing to do."""
        tree, pipeline = self._tree, self._pipeline
        answered = 0  # Visits since `info` that needed no evaluation.
        promoted = info.promoted
        progressed = False
        while pipeline.in_flight < self._rule.in_flight:
            in_flight = pipeline.in_flight_visits + promoted
            target, ahead = self._rule.next(info.visits, in_flight, self._in_time(now))
            if target <= 0:
                break  # More in flight would weaken the search.
            wanted = self._watch.visits_left(info, in_flight) - answered
            if wanted <= 0:
                break
            batch = pipeline.take()
            result = tree.collect(batch, target, wanted, ahead)
            answered += result.visits_done
            promoted += result.promoted
            if not batch.size:
                self._only_decided = result.visits_done > 0 and not result.cache_hits
                tree.cancel(batch)  # Only collisions, or no visit needed an evaluation.
                pipeline.release(batch)
                return progressed or result.visits_done > 0
            progressed = True
            pipeline.submit(batch)
            if not self._first_batch_ms:
                self._first_batch_ms = 1000 * (perf_counter() - self._task.started)
            if not pipeline.in_flight:
                break
        return progressed

    def due_at(self, now: float) -> float:
        """Return when time alone requires `advance`: for a deadline or a report. In perf_counter seconds."""
        due = self._watch.next_deadline(now)
        if self._on_report is not None and now < self._next_report < due:
            return self._next_report
        return due

    def finish(self) -> Report:
        """Cancel the batches in flight and return the report."""
        time_is_up = perf_counter() >= (self._watch.soft or self._watch.hard or inf)
        in_vain = self._pipeline.in_flight > 0 and time_is_up
        self._pipeline.abandon()
        report = self.report()
        if in_vain and not report.playouts:
            self._log("no evaluation came in time: the evaluator is busy, stopped or hangs")
        if report.full:
            self._note_full()
        report = self._with_chosen_move(report)
        self._watch.finished(perf_counter(), self._tree.root_info())
        return report

    def _with_chosen_move(self, report: Report) -> Report:
        """Return the report with the move to play, which the temperature or a level may choose.

        A level's first line begins with its move. With a temperature the lines stay: their values decide
        about resignations.
        """
        temperature = temperature_at(self._options, self._task.fullmove - 1)
        level = self._task.level
        if (temperature <= 0 and level is None) or not report.nodes:
            return report
        children = self._tree.children()
        if level is not None:
            move = choose(level, self._task.game, children, self._options, self._task.random)
        else:
            moves = [Candidate(child.move, child.visits, child.evaluation.q) for child in children]
            move = choose_move(moves, self._options, temperature, self._task.random)
        if move == report.best_move:
            return report
        line = next(self._line(line) for line in self._tree.lines(len(children)) if line.moves[0] == move)
        lines = report.lines
        if level is not None:
            lines = (line, *(other for other in lines if other.moves[0] != move))[: len(lines)]
        return replace(report, best_move=move, ponder=line.moves[1] if line.moves[1:] else None, lines=lines)

    def report(self) -> Report:
        """Return the current state of the search."""
        info = self._tree.root_info()
        lines = tuple(self._line(line) for line in self._tree.lines(self._options.multipv))
        if not lines:  # nothing has come back yet
            task = self._task
            lines = static_lines(task.game, task.root_moves, self._options.multipv, task.expected)
        moves = lines[0].moves
        self._depth = max(self._depth, int(info.mean_depth))  # GUIs pass over a line of less depth
        wanted = self._options.verbose_move_stats or self._options.log_live_stats
        children = self._tree.children(own_values=True) if wanted else []
        return Report(
            best_move=moves[0],
            ponder=moves[1] if len(moves) > 1 else None,
            lines=lines,
            nodes=info.visits,
            playouts=info.playouts,
            depth=self._depth,
            selective_depth=info.max_depth,
            seconds=perf_counter() - self._task.started,
            hashfull=info.hashfull,
            cache_hits=info.cache_hits,
            evaluations=info.evaluations,
            batches=info.batches,
            first_batch_ms=self._first_batch_ms,
            tablebase_hits=info.tablebase_hits,
            full=info.full,
            draw_score=self._draw_score,
            statistics=tuple(
                MoveStatistics.of(child, policy_index(self._task.game, child.move)) for child in children
            ),
            root_statistics=MoveStatistics.of_root(info, children, self._draw_score) if children else None,
        )

    @property
    def _draw_score(self) -> float:
        """Value of a draw for the side to move."""
        draw_score = self._options.draw_score
        return draw_score if self._task.game.turn == "white" else -draw_score

    def _line(self, line: TreeLine) -> Line:
        """Return a line of the tree for display."""
        return self._task.contempt.shown(Line.of(line), self._task.game.turn)

    def _tell(self, now: float, info: RootInfo) -> None:
        """Send a report if one is due. Log once that the tree is full and gets pruned."""
        if now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            if self._on_report is not None and info.visits > 0:
                best = self._tree.lines(1)
                shown = (int(info.mean_depth), best[0].moves[0] if best else None)
                if shown != self._last_shown or now - self._last_report >= REPORT_ALWAYS_SECONDS:
                    self._last_shown = shown
                    self._last_report = now
                    self._on_report(self.report())
        if info.full:
            self._note_full()

    def _note_full(self) -> None:
        if not self._full_noted:
            self._full_noted = True
            self._log("the tree is full: the least important nodes are pruned; RamLimitMb limits it")

    # -- the size of batches -----------------------------------------------------------------------------

    def _in_time(self, now: float) -> int:
        """Return the largest batch that is computed before the search must end."""
        hard = self._watch.hard
        if hard is None:
            return UNLIMITED_VISITS
        return self._rule.fitting((hard - now) * 1000 / (self._pipeline.in_flight + 1))

    def burst(self, exchange: Exchange, due_at: float, patience: float, interrupt: int) -> str:
        """Run without `advance`, and return why it ended; see Exchange.run. due_at: when time requires
        `advance`. patience: end of the longest wait. Both in perf_counter seconds."""
        now = perf_counter()
        nodes, look_at, depth, check_at = self._watch.bounds(self._info)
        end = exchange.run(
            until=min(now + BURST_SECONDS, check_at, due_at if due_at > now else inf),
            patience=patience,
            hard=self._watch.hard,
            nodes=nodes,
            nodes_as_playouts=self._options.nodes_as_playouts,
            look_at=look_at,
            depth=depth,
            interrupt=interrupt,
        )
        if not self._first_batch_ms and exchange.first_sent is not None:
            self._first_batch_ms = 1000 * (exchange.first_sent - self._task.started)
        return end

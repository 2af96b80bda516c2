# SPDX-License-Identifier: GPL-3.0-or-later
"""The mate search of `go mate N`, in slices. It needs no evaluator, and runs before the network's search.

    search = MateSearch(task, control)
    while search.advance():
        ...
    report = search.report()        # the mate, or None
    task = search.remaining_task()  # without a mate: what the network searches

engine/core/mate has the algorithm.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from engine._core import MateSolver
from engine.search.control import SearchControl
from engine.search.limits import DEFAULT_MS
from engine.search.player.memory import tree_megabytes
from engine.search.player.task import SearchTask
from engine.search.report import Line, Report

SLICE = 20_000
"""Positions between two checks of the limits: about 2 ms."""

MOST_TABLE_MB = 256
"""Maximum memory of the table in megabytes, if RamLimitMb allows as much."""

MOST_MOVES = 1000
"""Larger limits count as this. The solver's own is lower."""

TIME_SHARE = 0.5
"""Share of the time for a move. The network's search needs the rest, because most positions have no mate."""

REPORT_SECONDS = 1.0
"""Minimum time between two messages about excluded mates."""


class MateSearch:
    """A search for the shortest mate of a task whose limits have `mate`. One thread at a time may use it."""

    def __init__(self, task: SearchTask, control: SearchControl) -> None:
        assert task.limits.mate is not None
        self._task = task
        self._control = control
        megabytes = min(tree_megabytes(task.options), MOST_TABLE_MB)
        moves = min(task.limits.mate, MOST_MOVES)
        self._solver = MateSolver(task.game, moves, task.search_moves, megabytes << 20)
        self._decided = False
        self._next_report = task.started + REPORT_SECONDS
        self._reported = 0

    def advance(self) -> bool:
        """Search a slice. Return False once the mate is decided, a limit is met, or `control` stops it.

        The limits are half of the time, and `nodes` as positions.
        """
        nodes = self._task.limits.nodes
        left = SLICE if nodes is None else min(SLICE, nodes - self._solver.positions)
        self._decided = self._solver.run(max(0, left))
        if self._decided or self._control.stopped:
            return False
        deadline = self._deadline
        return (nodes is None or self._solver.positions < nodes) and (
            deadline is None or perf_counter() < deadline
        )

    def progress_text(self) -> str:
        """Return a message about mates that a long search has excluded; empty if there is nothing new."""
        now, excluded = perf_counter(), self._solver.excluded
        if now < self._next_report or excluded == self._reported:
            return ""
        self._next_report, self._reported = now + REPORT_SECONDS, excluded
        return f"no mate in {excluded} so far"

    def verdict(self) -> str:
        """Return the result of a finished search without a mate, in one sentence."""
        excluded = self._solver.excluded
        moves = " with these moves" if self._task.search_moves else ""
        if self._decided:
            return f"no mate in {excluded}{moves}"
        known = f": none in {excluded}" if excluded else ""
        return f"mate in {self._task.limits.mate} not decided after {self._solver.positions} positions{known}"

    def report(self) -> Report | None:
        """Return the report of the mate, whose `nodes` are positions; None if none is known."""
        solver = self._solver
        if not solver.mate:
            return None
        moves, plies = tuple(solver.line), 2 * solver.mate - 1
        line = Line(moves, solver.positions, 1.0, (1.0, 0.0, 0.0), plies, 0.0, mate=solver.mate, doubt=0.0)
        return Report(
            best_move=moves[0],
            ponder=moves[1] if len(moves) > 1 else None,
            lines=(line,),
            nodes=solver.positions,
            playouts=solver.positions,
            depth=plies,
            selective_depth=plies,
            seconds=perf_counter() - self._task.started,
            hashfull=solver.table_fill,
        )

    def remaining_task(self) -> SearchTask:
        """Return the task of the network's search: the other limits, or DEFAULT_MS from now."""
        limits = replace(self._task.limits, mate=None)
        if not limits.may_not_end:
            return replace(self._task, limits=limits)
        now, hit = perf_counter(), self._control.clock_started
        since_hit_ms = 0 if hit is None else round(1000 * (now - hit))
        limits = replace(limits, movetime_ms=since_hit_ms + DEFAULT_MS)
        return replace(self._task, limits=limits, started=now)

    @property
    def _deadline(self) -> float | None:
        """End of the search's time, in perf_counter seconds; None without one."""
        move_ms = self._task.limits.move_ms(self._task.game.turn)
        if move_ms is None or self._control.pondering:
            return None
        hit = self._control.clock_started
        return (self._task.started if hit is None else hit) + TIME_SHARE * move_ms / 1000

"""When a search ends: its limits, its clock, and whether more visits could still change the move."""

from __future__ import annotations

from engine._core import RootInfo, Tree
from engine.search.clock import allocate
from engine.search.control import SearchControl
from engine.search.report import Line
from engine.search.task import SearchTask

CHECK_SECONDS = 0.01
"""Time between two looks at the root's moves, which cost more than the counts."""

CHECK_VISITS_SHARE = 16
"""They are also looked at when the visits have grown by one part in this many: a fast search does much in
little time."""

STOP_GRACE_SECONDS = 0.1
"""How long a search that is stopped before anything has come back waits for its first evaluation."""

UNLIMITED_VISITS = 1 << 40


class LimitWatch:
    """Tells whether a search has met one of its limits. `set_deadlines` is called before each look.

    soft, hard: when time ends the search (perf_counter seconds), unless the choice of move is unsettled, and
    in any case. None: time does not end it, or pondering has not ended yet.
    """

    def __init__(self, tree: Tree, task: SearchTask, control: SearchControl) -> None:
        self.soft: float | None = None
        self.hard: float | None = None
        self._tree = tree
        self._task = task
        self._control = control
        self._only_move = len(task.root_moves) == 1
        self._first: float | None = None  # When the search ends without a single evaluation.
        self._deadlines_set = False
        self._next_check = 0.0
        self._next_check_visits = 0

    @property
    def wakes_at(self) -> float | None:
        """When time alone may end the search, in perf_counter seconds; None if it cannot."""
        return self.soft if self.soft is not None else self.hard

    def is_over(self, now: float, info: RootInfo, in_flight: int) -> bool:
        """Whether the search ends now (perf_counter seconds).

        info: of its root. in_flight: batches of it that are not back yet.
        """
        control, limits = self._control, self._task.limits
        if control.stopped:
            return info.visits > 0 or not self._may_wait_for_first(now, in_flight)
        if limits.infinite or control.pondering:
            return False
        if info.visits == 0:
            return self._first is not None and now >= self._first
        if self.hard is not None and now >= self.hard:
            return True
        if limits.nodes is not None and self._nodes(info) >= limits.nodes:
            return True
        if limits.depth is not None and info.mean_depth >= limits.depth:
            return True
        if limits.unbounded:
            return False
        if limits.clock is not None and self._only_move:
            return True
        if now < self._next_check and info.visits < self._next_check_visits:
            return False
        self._next_check = now + CHECK_SECONDS
        self._next_check_visits = info.visits + info.visits // CHECK_VISITS_SHARE + 1
        if info.proof is not None:
            return True
        if limits.mate is not None and self._mate_found(limits.mate):
            return True
        return self._time_is_used_up(now, info)

    def visits_left(self, info: RootInfo, in_flight: int) -> int:
        """Visits that the search may still make, those of the `in_flight` positions not among them."""
        limits = self._task.limits
        if limits.nodes is None or limits.infinite or self._control.pondering:
            return UNLIMITED_VISITS
        return limits.nodes - self._nodes(info) - in_flight

    def set_deadlines(self) -> None:
        """Fix the times to stop at, once the clock runs: at the start, or with `ponderhit`. Does nothing
        before and after that."""
        if self._deadlines_set or self._control.pondering:
            return
        self._deadlines_set = True
        task, limits, options = self._task, self._task.limits, self._task.options
        start = task.started if self._control.clock_started is None else self._control.clock_started
        if limits.movetime_ms is not None:
            reserve = min(options.move_overhead_ms / 2, limits.movetime_ms * 0.05)
            self.soft = self.hard = start + (limits.movetime_ms - reserve) / 1000
            # One evaluation is worth more than being punctual to the millisecond.
            self._first = start + (limits.movetime_ms + options.move_overhead_ms) / 1000
        clock = limits.clock.of(task.game.turn) if limits.clock is not None else None
        if clock is not None and limits.clock is not None:
            remaining_ms, increment_ms = clock
            budget = allocate(
                remaining_ms,
                increment_ms,
                limits.clock.moves_to_go,
                overhead_ms=options.move_overhead_ms,
                slowmover=options.slowmover,
                fullmove=task.fullmove,
            )
            self.soft = min(self.soft or 1e18, start + budget.soft_ms / 1000)
            self.hard = min(self.hard or 1e18, start + budget.hard_ms / 1000)
            # A move without any evaluation is as good as lost: for the first one, risk more of the clock.
            self._first = max(self.hard, start + remaining_ms * 0.3 / 1000)

    def _may_wait_for_first(self, now: float, in_flight: int) -> bool:
        """Whether a stopped search without any evaluation should still wait for one."""
        if self._first is None or self._first > now + STOP_GRACE_SECONDS or not self._deadlines_set:
            self._first, self._deadlines_set = now + STOP_GRACE_SECONDS, True
        return in_flight > 0 and now < self._first

    def _mate_found(self, moves: int) -> bool:
        lines = self._tree.lines(1)
        mate = Line.of(lines[0]).mate if lines else None
        return mate is not None and 0 < mate <= moves

    def _time_is_used_up(self, now: float, info: RootInfo) -> bool:
        """Past the soft limit with a settled choice, or the second move cannot catch up any more."""
        options = self._task.options
        past_soft = self.soft is not None and now >= self.soft
        factor = options.smart_pruning_factor
        if not past_soft and (factor == 0 or options.multipv > 1):
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
        if self._task.limits.nodes is not None:
            left = self._task.limits.nodes - self._nodes(info)
        if self.soft is not None:
            elapsed = now - self._task.started
            if info.playouts < 32 or elapsed < 0.02:
                return False
            left = min(left, int(info.playouts / elapsed * (self.soft - now)))
        return first - second > left / factor

    def _nodes(self, info: RootInfo) -> int:
        """What a limit of nodes counts."""
        return info.playouts if self._task.options.nodes_as_playouts else info.visits

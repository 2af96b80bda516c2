# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a search: by its limits, its clock, or because more visits could not change the move."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

from engine._core import ChildInfo, RootInfo, Tree
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.search.player.task import SearchTask
from engine.search.time.budget import Spent

CHECK_SECONDS = 0.01
"""Time between two checks of the root's moves, which cost more than those of the counts."""

CHECK_VISITS_SHARE = 16
"""The moves are also checked when the visits have grown by 1/16, for fast searches."""

STOP_GRACE_SECONDS = 0.1
"""Time that a search waits for its first evaluation if `stop` comes before it."""

TOLERANCE_SECONDS, TOLERANCE_SHARE = 0.2, 0.1
"""Time, or share of the budget if that is less, before smart pruning may end a search. The time saved would
be worth less than what the search may find. lc0 always waits 0.2 s."""

SILENCE_SECONDS = 0.25
"""Minimum silence after which an evaluator counts as unavailable, if it is also UNUSUAL."""

UNUSUAL = 4.0
"""Minimum silence in units of the usual gap between answers."""

KNOWN_SECONDS = 0.05
"""Weight of the previous search's speed, in seconds of this one."""

TELLING_PLAYOUTS, TELLING_SECONDS = 32, 0.02
"""Without a previous search, minimum playouts and seconds for a speed."""

UNLIMITED_VISITS = 1 << 40


class LimitWatch:
    """Check whether a search has met one of its limits. Call `set_deadlines` before each check.

    soft: when time ends the search unless the choice of move is unsettled, in perf_counter seconds. hard:
    when time ends it in any case. None: no time limit, or still pondering. has_deadlines: they are set.
    """

    def __init__(self, tree: Tree, task: SearchTask, control: SearchControl) -> None:
        self.soft: float | None = None
        self.hard: float | None = None
        self._tree = tree
        self._task = task
        self._control = control
        self._pace = Pace(task.keeper.playouts_per_second)
        self._margin = pruning_margin(task.options, task.limits)
        self._gain = _Gain(task.options.minimum_kld_gain_per_node, task.options.kld_gain_average_interval)
        self._unbounded = task.limits.unbounded
        limits, options = task.limits, task.options
        self._compares_moves = bool(options.smart_pruning_factor or options.minimum_kld_gain_per_node > 0)
        self._compares_moves |= limits.clock is not None or limits.movetime_ms is not None
        self._only_move = len(task.root_moves) == 1
        self._first: float | None = None  # Deadline of the first evaluation.
        self._in_time = True  # An evaluation arrived before the hard limit.
        self.has_deadlines = False
        self._next_check = 0.0
        self._next_check_visits = 0

    def next_deadline(self, now: float) -> float:
        """Return when time alone requires a check, in perf_counter seconds; infinite if it does not."""
        due = inf
        for deadline in (self.soft, self.hard, self._first):
            if deadline is not None and now < deadline < due:
                due = deadline
        if self.soft is not None and self.soft <= now:  # It ends as soon as the choice is settled.
            due = min(due, now + CHECK_SECONDS)
        return due

    def is_over(self, now: float, info: RootInfo, in_flight: int) -> bool:
        """Return True if the search ends now.

        now: perf_counter seconds. info: of the root. in_flight: batches in flight.
        """
        control, limits = self._control, self._task.limits
        self._pace.look(now, info.playouts)
        if control.stopped:
            return info.visits > 0 or not self._may_wait_for_first(now, in_flight)
        if limits.infinite or control.pondering:
            return False
        if info.visits == 0:
            self._in_time = self.hard is None or now < self.hard
            return self._first is not None and now >= self._first
        if self.hard is not None and now >= self.hard:
            return True
        if limits.nodes is not None and self._nodes(info) >= limits.nodes:
            return True
        if limits.depth is not None and info.mean_depth >= limits.depth:
            return True
        if self._unbounded:
            return False
        if limits.clock is not None and self._only_move:
            return True
        if now < self._next_check and info.visits < self._next_check_visits:
            return False
        self._next_check = now + CHECK_SECONDS
        self._next_check_visits = info.visits + info.visits // CHECK_VISITS_SHARE + 1
        return self._is_decided(now, info)

    @property
    def nodes(self) -> int | None:
        """Limit of visits (playouts, with the option NodesAsPlayouts); None if unlimited."""
        limits = self._task.limits
        if limits.nodes is None or limits.nodes >= UNLIMITED_VISITS or limits.infinite:
            return None
        return None if self._control.pondering else limits.nodes

    def visits_left(self, info: RootInfo, in_flight: int) -> int:
        """Return the visits that the search may still make, after the `in_flight` ones."""
        nodes = self.nodes
        return UNLIMITED_VISITS if nodes is None else nodes - self._nodes(info) - in_flight

    def bounds(self, info: RootInfo) -> tuple[int | None, int, float, float]:
        """Return what requires the next check besides deadlines: the maximum visits (see `nodes`), a number
        of root visits, a mean depth, and a time in perf_counter seconds."""
        if self._unbounded or self._control.pondering:
            return None, UNLIMITED_VISITS if info.visits else 1, inf, inf
        limits = self._task.limits
        # If only time limits the search, a check after some milliseconds suffices.
        by_time = limits.nodes is None and limits.depth is None
        look_at = 1 if not info.visits else UNLIMITED_VISITS if by_time else self._next_check_visits
        depth = inf if limits.depth is None else float(limits.depth)
        return self.nodes, look_at, depth, self._next_check

    def set_deadlines(self, info: RootInfo) -> None:
        """Set the deadlines once the clock runs: at the start, or with `ponderhit`. Otherwise do nothing."""
        if self.has_deadlines or self._control.pondering:
            return
        self.has_deadlines = True
        task, limits, options = self._task, self._task.limits, self._task.options
        if limits.movetime_ms is not None:
            late = task.keeper.lateness.reserve_ms(options.move_overhead_ms) - options.move_overhead_ms
            reserve = min(options.move_overhead_ms / 2 + late, limits.movetime_ms * 0.05)
            self.soft = self.hard = self._started + (limits.movetime_ms - reserve) / 1000
            # A first evaluation is worth a delay of milliseconds.
            self._first = self._started + (limits.movetime_ms + options.move_overhead_ms) / 1000
        clock = limits.clock.of(task.game.turn) if limits.clock is not None else None
        if clock is not None and limits.clock is not None:
            remaining_ms, increment_ms = clock
            budget = task.keeper.budget(
                options,
                remaining_ms=remaining_ms,
                increment_ms=increment_ms,
                moves_to_go=limits.clock.moves_to_go,
                ply=task.game.ply,
                kept_visits=info.visits - info.playouts,
            )
            self.soft = min(self.soft or 1e18, self._started + budget.soft_ms / 1000)
            self.hard = min(self.hard or 1e18, self._started + budget.hard_ms / 1000)
            self._first = self._started + task.keeper.first_evaluation_ms / 1000

    def finished(self, now: float, info: RootInfo) -> None:
        """Report the used time to the time keeper. now: end of the search."""
        spent = Spent(
            1000 * (now - self._started), 1000 * self._pace.seconds, info.visits, self._pace.playouts
        )
        deadline = self.hard if self._in_time else self._first
        self._task.keeper.finished(spent, 1000 * (now - deadline) if deadline is not None else 0.0)

    @property
    def _started(self) -> float:
        """Start of the clock, in perf_counter seconds."""
        hit = self._control.clock_started
        return self._task.started if hit is None else hit

    def _may_wait_for_first(self, now: float, in_flight: int) -> bool:
        """Return True if a stopped search without any evaluation should wait for one."""
        if self._first is None or self._first > now + STOP_GRACE_SECONDS or not self.has_deadlines:
            self._first, self.has_deadlines = now + STOP_GRACE_SECONDS, True
        return in_flight > 0 and now < self._first

    # -- checks of the root's moves ----------------------------------------------------------------------

    def _is_decided(self, now: float, info: RootInfo) -> bool:
        """Return True if a proof decides the search, or the rest of it could not change the choice."""
        limits = self._task.limits
        if info.proof is not None:
            return True
        if not self._compares_moves:
            return False
        children = self._tree.children()
        if limits.clock is not None and sum(not _loses(child) for child in children) == 1:
            return True
        if self._gain.is_too_small(info.visits, children):
            return True
        return self._time_is_used_up(now, info, children)

    def _time_is_used_up(self, now: float, info: RootInfo, children: Sequence[ChildInfo]) -> bool:
        """Return True past the soft limit with a settled choice, or if no other move can be chosen."""
        if self.soft is not None and now >= self.soft:
            return len(children) < 2 or is_settled(children)
        options = self._task.options
        factor = options.smart_pruning_factor
        if factor == 0 or options.multipv > 1 or len(children) < 2:
            return False
        left = self._visits_to_come(now, info)
        if left is None:
            return False
        if self.soft is None and options.minimum_kld_gain_per_node <= 0:
            undecided = info.visits + undecided_visits(children, left / factor, factor)
            self._next_check_visits = max(self._next_check_visits, undecided)
        return choice_holds(children, left / factor, options.value_choice_share, self._margin)

    def _visits_to_come(self, now: float, info: RootInfo) -> float | None:
        """Return the visits that the limits leave; None if unknown or too early for pruning."""
        left: float = UNLIMITED_VISITS
        if self._task.limits.nodes is not None:
            left = self._task.limits.nodes - self._nodes(info)
        if self.soft is not None:
            tolerance = min(TOLERANCE_SECONDS, TOLERANCE_SHARE * (self.soft - self._started))
            per_second = self._pace.per_second(now)
            if per_second is None or now - self._started < tolerance:
                return None
            left = min(left, per_second * (self.soft - now))
        return left

    def _nodes(self, info: RootInfo) -> int:
        """Return the count that a node limit applies to."""
        return info.playouts if self._task.options.nodes_as_playouts else info.visits


def pruning_margin(options: Options, limits: Limits) -> float:
    """Return the margin for `choice_holds`: SmartPruningMargin under a clock, where other moves use the time
    saved; otherwise infinity."""
    return options.smart_pruning_margin if limits.clock is not None else inf


def choice_holds(children: Sequence[ChildInfo], to_come: float, share: float, margin: float) -> bool:
    """Return True if the first of the root's moves (Tree.children) remains the choice after more visits.

    No other move can become the most visited one, and none that can be chosen by value is nearly as good.
    to_come: number of visits. share: share of the most visits that a move needs to be chosen by value.
    margin: value gap to the first move at which a move is beaten; infinite: at none.
    """
    best, *others = children
    enough = share * best.visits - to_come
    worth = best.evaluation.q - margin
    return not any(
        other.visits >= best.visits - to_come
        or (other.visits > 0 and other.visits >= enough and other.evaluation.q > worth)
        for other in others
        if not _loses(other)
    )


def undecided_visits(children: Sequence[ChildInfo], to_come: float, factor: float) -> int:
    """Return for how many visits `choice_holds` remains False: each adds at most one to the lead of the most
    visited move, and takes 1 / factor from those to come. At most 0: it may be True now."""
    second, first = sorted([0, 0, *(child.visits for child in children if not _loses(child))])[-2:]
    return int((to_come - (first - second)) / (1 + 1 / factor))


def is_settled(children: Sequence[ChildInfo]) -> bool:
    """Return True if the most visited move has the best value of those with a quarter of its visits."""
    most_visited = max(children, key=lambda child: child.visits)
    rivals = [child for child in children if child.visits * 4 >= most_visited.visits]
    return max(rivals, key=lambda child: child.evaluation.q).move == most_visited.move


def _loses(child: ChildInfo) -> bool:
    """Return True if a root move is proven to lose."""
    return child.proof is not None and child.proof.value < 0


class _Gain:
    """Change of the root's visit distribution: lc0's MinimumKLDGainPerNode and KLDGainAverageInterval.

    The gain is the Kullback-Leibler divergence of the distribution from the one at least `interval` visits
    earlier, per visit since then.
    """

    def __init__(self, minimum: float, interval: int) -> None:
        self._minimum = minimum
        self._interval = interval
        self._before: dict[str, int] = {}
        self._visits_before = 0

    def is_too_small(self, visits: int, children: Sequence[ChildInfo]) -> bool:
        """Return True if the last interval gained less than the minimum per visit. visits: of the root."""
        if self._minimum <= 0 or visits - self._visits_before < self._interval:
            return False
        counts = {child.move: child.visits for child in children}
        before, self._before = self._before, counts
        new, self._visits_before = visits - self._visits_before, visits
        return bool(before) and kld_gain(before, counts) / new < self._minimum


def kld_gain(before: dict[str, int], after: dict[str, int]) -> float:
    """Return the Kullback-Leibler divergence of earlier visits per move from later ones.

    Moves without visits at either time are excluded.
    """
    old, new = sum(before.values()), sum(after.values())
    shares = [(visits / old, after.get(move, 0) / new) for move, visits in before.items()]
    return sum(was * log(was / now) for was, now in shares if was and now)


class Pace:
    """Playouts and the time that they took. All times are perf_counter seconds.

    seconds: time from the first evaluation on in which the evaluator was available.
    """

    def __init__(self, known_per_second: float = 0.0) -> None:
        """known_per_second: playouts per second of the previous search; 0 if there was none."""
        self.seconds = 0.0
        self._known = known_per_second
        self._first_playouts = 0
        self._playouts = 0
        self._last_progress: float | None = None
        self._usual_gap = 0.0
        self._gaps = 0

    def look(self, now: float, playouts: int) -> None:
        """Record the number of playouts so far."""
        if playouts == self._playouts:
            return
        self._playouts = playouts
        if self._last_progress is None:
            # Exclude the first evaluation and its time: it may have waited for the evaluator to start.
            self._first_playouts = playouts
        else:
            gap = now - self._last_progress
            if gap > self._longest_gap:
                gap = self._usual_gap
            else:
                self._gaps += 1
                self._usual_gap += (gap - self._usual_gap) / min(self._gaps, 16)
            self.seconds += gap
        self._last_progress = now

    @property
    def playouts(self) -> int:
        """Playouts made in `seconds`."""
        return self._playouts - self._first_playouts

    def per_second(self, now: float) -> float | None:
        """Return playouts per second; None while they are unknown or the evaluator is silent."""
        if self._last_progress is None or now - self._last_progress > self._longest_gap:
            return None
        if self._known > 0:
            return (self.playouts + self._known * KNOWN_SECONDS) / (self.seconds + KNOWN_SECONDS)
        if self.playouts < TELLING_PLAYOUTS or self.seconds < TELLING_SECONDS:
            return None
        return self.playouts / self.seconds

    @property
    def _longest_gap(self) -> float:
        return max(SILENCE_SECONDS, UNUSUAL * self._usual_gap)

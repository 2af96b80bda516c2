# SPDX-License-Identifier: GPL-3.0-or-later
"""When a search ends: LimitWatch on real trees, with times that the tests choose."""

from collections.abc import Callable
from math import inf, log
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from engine._core import Game, Tree
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.loop.stopping import (
    UNLIMITED_VISITS,
    LimitWatch,
    choice_holds,
    kld_gain,
    pruning_margin,
    undecided_visits,
)
from engine.search.player.task import SearchTask
from engine.search.time.keeper import TimeKeeper
from tests.engine.core.tree.search_helpers import new_tree, search

STARTED = 1000.0
ONE_DEFENCE = "7k/8/4K3/8/8/8/8/5R1R b - - 0 1"
ONE_GOOD_MOVE = "k7/8/8/8/8/2q5/1P6/K7 w - - 0 1"
FORCED = "7k/8/8/8/8/8/1r6/K7 w - - 0 1"


def watched(
    limits: Limits,
    *,
    visits: int = 100,
    control: SearchControl | None = None,
    fen: str | None = None,
    keeper: TimeKeeper | None = None,
    **changed: Any,
) -> tuple[LimitWatch, Tree]:
    """The watch of a search that has made so many visits. changed: options."""
    game = Game(fen)
    tree = new_tree(game)
    search(tree, visits)
    options = Options(move_overhead_ms=100, smart_pruning_factor=0.0, value_choice_share=1.0).changed(
        **changed
    )
    task = SearchTask(game, game.legal_moves(), limits, options, STARTED, Random(1), keeper or TimeKeeper())
    return LimitWatch(tree, task, control or SearchControl(pondering=limits.ponder)), tree


def ends(watch: LimitWatch, tree: Tree, seconds: float, in_flight: int = 0, stopped: bool = False) -> bool:
    """Whether the search ends so many seconds after its start."""
    if not stopped:
        watch.set_deadlines(tree.root_info())
    return watch.is_over(STARTED + seconds, tree.root_info(), in_flight)


def test_time_for_a_move_is_kept_but_for_a_reserve() -> None:
    watch, tree = watched(Limits(movetime_ms=1000))
    assert not ends(watch, tree, 0.94)  # 5 %, no more than half of the overhead
    assert ends(watch, tree, 0.95)
    assert watch.soft == pytest.approx(STARTED + 0.95)


def test_time_for_a_move_is_overdrawn_for_the_first_evaluation() -> None:
    """One is worth more than being punctual to the millisecond; but no more than the overhead."""
    watch, tree = watched(Limits(movetime_ms=10), visits=0)
    assert not ends(watch, tree, 0.109, in_flight=1)
    assert ends(watch, tree, 0.110, in_flight=1)
    search(tree, 1)
    assert ends(watch, tree, 0.010, in_flight=1)


def test_the_clock_stands_still_while_pondering() -> None:
    control = SearchControl(pondering=True)
    watch, tree = watched(Limits(movetime_ms=1000, ponder=True), control=control)
    assert not ends(watch, tree, 50)
    assert watch.soft is None
    control.ponder_hit(STARTED + 50)
    assert not ends(watch, tree, 50.94)
    assert ends(watch, tree, 50.95)


def test_soft_limit_waits_until_the_best_move_has_most_visits() -> None:
    """Best among those with a quarter of its visits or more; the hard limit waits for nothing."""
    ended: set[bool] = set()
    for visits in range(100, 400, 10):
        watch, tree = watched(Limits(clock=Clock(10_000, 10_000)), visits=visits)
        assert not ends(watch, tree, 0)
        assert watch.soft is not None and watch.hard is not None and STARTED < watch.soft < watch.hard
        first, *others = sorted(tree.children(), key=lambda child: child.visits, reverse=True)
        better = [
            child
            for child in others
            if 4 * child.visits >= first.visits and child.evaluation.q > first.evaluation.q
        ]
        ended.add(ends(watch, tree, watch.soft - STARTED))
        assert ends(watch, tree, watch.soft + 0.02 - STARTED) == (not better)
        assert ends(watch, tree, watch.hard - STARTED)
    assert ended == {True, False}


def test_third_beyond_twice_the_reserve_is_risked_unevaluated() -> None:
    watch, tree = watched(Limits(clock=Clock(10_000, 10_000)), visits=0)
    assert not ends(watch, tree, 2.93)
    assert ends(watch, tree, 2.95)


def test_first_evaluation_is_not_awaited_when_the_clock_is_low() -> None:
    watch, tree = watched(Limits(clock=Clock(60, 60)), visits=0)
    assert not ends(watch, tree, 0.001)
    assert ends(watch, tree, 0.004)


def test_stopped_search_waits_for_an_evaluation_in_flight() -> None:
    control = SearchControl()
    watch, tree = watched(Limits(infinite=True), visits=0, control=control)
    control.stop()
    assert ends(watch, tree, 5, stopped=True)  # nothing is under way
    watch, tree = watched(Limits(infinite=True), visits=0, control=control)
    assert not ends(watch, tree, 5, in_flight=1, stopped=True)
    assert not ends(watch, tree, 5.09, in_flight=1, stopped=True)
    assert ends(watch, tree, 5.11, in_flight=1, stopped=True)


def test_a_single_legal_move_is_played_at_once_under_a_clock_alone() -> None:
    clock = Limits(clock=Clock(10**6, 10**6))
    assert ends(*watched(clock, fen=FORCED, visits=1), 0)
    assert not ends(*watched(clock, visits=1), 0)


def test_only_move_not_lost_is_played_at_once_under_a_clock() -> None:
    clock = Limits(clock=Clock(10**6, 10**6))
    assert not ends(*watched(clock, fen=ONE_DEFENCE, visits=100), 0.001), "both moves may hold"
    watch, tree = watched(clock, fen=ONE_DEFENCE, visits=1400)
    assert [child.move for child in tree.children() if child.proof is None] == ["h8g8"]
    assert tree.root_info().proof is None
    assert ends(watch, tree, 0.001)
    assert not ends(*watched(Limits(nodes=10**6), fen=ONE_DEFENCE, visits=1400), 0.001)


def pruned_at(visits_at: Callable[[float], float], **changed: Any) -> float | None:
    """When a search of ten seconds ends that has so many visits after so many seconds; one move gets
    two thirds of them. None: not before its time is over."""
    watch, tree = watched(
        Limits(movetime_ms=10_000), visits=1, fen=ONE_GOOD_MOVE, smart_pruning_factor=1.33, **changed
    )
    for tenths in range(1, 95):
        search(tree, int(visits_at(tenths / 10)))
        if ends(watch, tree, tenths / 10):
            return tenths / 10
    return None


def test_smart_pruning_ends_a_search_that_no_other_move_can_win() -> None:
    """A lead of some 40 t is out of reach when 100 (10 - t) / 1.33 visits are to come: after six or seven
    seconds.
    """
    at = pruned_at(lambda seconds: 100 * seconds)
    assert at is not None and 4 < at < 7
    assert pruned_at(lambda seconds: 100 * seconds, multipv=2) is None
    later = pruned_at(lambda seconds: 100 * seconds, value_choice_share=0.6)
    assert later is not None and later > at + 1, "six tenths of its visits are enough to be chosen instead"


def test_smart_pruning_does_not_count_the_time_without_an_evaluator() -> None:
    """By the mean speed since its start the search would seem hopeless after a while."""
    assert pruned_at(lambda seconds: 100 * min(seconds, 3.0)) is None
    at = pruned_at(lambda seconds: 100 * (seconds if seconds < 1 else max(1.0, seconds - 5)))
    assert at is not None and at > 7.5, "the five seconds in between do not make it slow"


def test_smart_pruning_leaves_every_search_a_moment() -> None:
    """A tenth of a second, of one."""
    keeper = TimeKeeper()
    keeper.playouts_per_second = 100.0
    watch, tree = watched(
        Limits(movetime_ms=1000), visits=200, fen=ONE_GOOD_MOVE, keeper=keeper, smart_pruning_factor=1.33
    )
    assert not ends(watch, tree, 0.05)
    assert ends(watch, tree, 0.11)


@pytest.mark.parametrize(
    ("limits", "holds"),
    [
        (Limits(nodes=200), False),
        (Limits(movetime_ms=1000), False),
        (Limits(nodes=200, movetime_ms=1000), False),
        (Limits(nodes=200, clock=Clock(60_000, 60_000)), True),
    ],
)
def test_a_worse_value_ends_a_search_only_under_a_clock(limits: Limits, holds: bool) -> None:
    """Where no clock runs the time that is saved is lost."""
    options = Options(smart_pruning_margin=0.02, value_choice_share=0.1)
    _watch, tree = watched(limits, visits=150, fen=ONE_GOOD_MOVE)
    children = tree.children()
    margin = pruning_margin(options, limits)
    assert choice_holds(children, children[0].visits // 3, 0.01, margin) is holds


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.33])
@pytest.mark.parametrize("visits", [(60, 40), (500, 499), (3, 0)])
def test_pruning_decides_no_earlier_than_predicted(visits: tuple[int, int], factor: float) -> None:
    left, q = 400, SimpleNamespace(q=0.0)

    def children(more: int) -> Any:
        """The root's moves after so many visits of the first one."""
        counts = visits[0] + more, visits[1]
        return [SimpleNamespace(visits=count, proof=None, evaluation=q) for count in counts]

    def holds(more: int) -> bool:
        return choice_holds(children(more), (left - more) / factor, 1.0, inf)

    undecided = undecided_visits(children(0), left / factor, factor)
    assert not any(holds(more) for more in range(undecided + 1))
    assert holds(undecided + 2)


def test_the_gain_of_visits_is_the_divergence_of_their_distributions() -> None:
    assert kld_gain({"a": 50, "b": 50}, {"a": 100, "b": 100}) == 0
    by_hand = 0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25)
    assert kld_gain({"a": 50, "b": 50, "c": 0}, {"a": 150, "b": 50, "c": 0}) == pytest.approx(by_hand)


def test_a_search_ends_when_an_interval_has_gained_too_little() -> None:
    def ends_after(minimum: float, interval: int, limits: Limits) -> int | None:
        watch, tree = watched(
            limits, visits=1, minimum_kld_gain_per_node=minimum, kld_gain_average_interval=interval
        )
        for step, visits in enumerate(range(100, 3000, 100)):
            search(tree, visits)
            if ends(watch, tree, 0.1 * step):
                return visits
        return None

    nodes = Limits(nodes=10**6)
    assert ends_after(0.0, 100, nodes) is None
    assert ends_after(1.0, 100, nodes) == 200, "the first interval is compared with none"
    assert ends_after(1.0, 500, nodes) == 1000
    later = ends_after(1e-4, 100, nodes)
    assert later is not None and later > 200
    assert ends_after(1.0, 100, Limits(infinite=True)) is None


def test_a_limit_of_nodes_counts_visits_in_flight() -> None:
    watch, tree = watched(Limits(nodes=100), visits=60)
    assert watch.visits_left(tree.root_info(), 7) == 33
    assert not ends(watch, tree, 0)
    search(tree, 100)
    assert ends(watch, tree, 0)


def test_pondering_has_no_limit_of_nodes() -> None:
    watch, tree = watched(Limits(nodes=10, ponder=True), visits=50)
    assert not ends(watch, tree, 0)
    assert watch.visits_left(tree.root_info(), 0) == UNLIMITED_VISITS

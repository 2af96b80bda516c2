# SPDX-License-Identifier: GPL-3.0-or-later
"""Time managers, by simulating the clocks of whole games."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from engine.options import Options
from engine.search.time.budget import Situation, Spent, TimeManager
from engine.search.time.keeper import TimeKeeper
from engine.search.time.managers import new_manager
from engine.settings.time_managers import MANAGERS

NAMES = [kind.name for kind in MANAGERS]
OURS = "adaptive"
VISITS_PER_MS = 10


@dataclass
class Played:
    """The clock after each move, and the budgets (soft) and visits of the trees."""

    clocks: list[float] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)
    trees: list[int] = field(default_factory=list)


def play(
    options: Options,
    remaining: float,
    increment: float = 0.0,
    *,
    lag: float = 0.0,
    moves: int = 200,
    moves_to_go: int | None = None,
    unsettled: float = 0.2,
    used: float = 1.0,
    kept: float = 0.4,
    keeper: TimeKeeper | None = None,
) -> Played:
    """A game in which every move uses its budget, or that share of it, now and then the hard one, and costs
    up to twice `lag` more. Each finds the share `kept` of the tree before. Ends with the clock."""
    chance, keeper, played = Random(1), keeper or TimeKeeper(), Played()
    control, tree = remaining, 0
    for number in range(moves):
        left = None if moves_to_go is None else moves_to_go - number % moves_to_go
        kept_visits = int(kept * tree)
        budget = keeper.budget(
            options,
            remaining_ms=remaining,
            increment_ms=increment,
            moves_to_go=left,
            ply=2 * number,
            kept_visits=kept_visits,
        )
        assert 0 <= budget.soft_ms <= budget.hard_ms
        spent = budget.hard_ms if chance.random() < unsettled else used * budget.soft_ms
        playouts = int(VISITS_PER_MS * spent)
        tree = kept_visits + playouts
        keeper.finished(Spent(spent, spent, tree, playouts), 0.0)
        played.budgets.append(budget.soft_ms)
        played.trees.append(tree)
        remaining -= spent + lag * 2 * chance.random()
        if remaining <= 0:
            played.clocks.append(remaining)
            break
        remaining += increment + (control if left == 1 else 0.0)
        played.clocks.append(remaining)
    return played


@pytest.mark.parametrize("lag", [0.0, 2.0, 8.0])
@pytest.mark.parametrize("name", NAMES)
def test_one_second_and_ten_milliseconds_a_move_lasts_for_any_game(name: str, lag: float) -> None:
    assert min(play(Options(time_manager=name), 1000, 10, lag=lag, moves=400).clocks) > 0


def test_the_reserve_survives_a_hiccup_at_one_second_and_ten_milliseconds() -> None:
    assert min(play(Options(), 1000, 10, lag=4, moves=400).clocks[20:]) > 50


USUAL = [(60, 0), (60, 1), (180, 2), (900, 10), (5400, 30)]


@pytest.mark.parametrize(
    ("name", "seconds", "increment"),
    # `alphazero` halves the clock every five moves: it is for games with an increment.
    [(name, *control) for name in NAMES for control in USUAL if name != "alphazero" or control[1]],
)
def test_usual_time_controls_are_used_and_not_exceeded(name: str, seconds: int, increment: int) -> None:
    clocks = play(Options(time_manager=name), seconds * 1000, increment * 1000, lag=20, moves=80).clocks
    assert len(clocks) == 80
    assert min(clocks) > 0
    assert clocks[-1] < 0.2 * seconds * 1000, "most of the time should be used in 80 moves"


@pytest.mark.parametrize("moves_to_go", [1, 2, 10, 40, 100])
@pytest.mark.parametrize("name", NAMES)
def test_classical_controls_reach_the_next_period(name: str, moves_to_go: int) -> None:
    options = Options(time_manager=name)
    assert min(play(options, 10_000, lag=5, moves=250, moves_to_go=moves_to_go).clocks) > 0


@pytest.mark.parametrize("slowmover", [0.01, 0.5, 3.0, 10.0])
@pytest.mark.parametrize("name", NAMES)
def test_slowmover_never_loses_on_time(name: str, slowmover: float) -> None:
    options = Options(time_manager=name, slowmover=slowmover)
    assert min(play(options, 5000, 50, lag=5, moves=300).clocks) > 0


def test_slowmover_multiplies_the_budget() -> None:
    def first(slowmover: float) -> float:
        return play(Options(slowmover=slowmover), 60_000, 600, moves=1).budgets[0]

    assert first(2.0) == pytest.approx(2 * first(1.0))
    assert first(0.5) == pytest.approx(0.5 * first(1.0))


@pytest.mark.parametrize("remaining", [-5000.0, -1.0, 0.0])
@pytest.mark.parametrize("name", NAMES)
def test_an_exhausted_clock_means_a_move_at_once(name: str, remaining: float) -> None:
    budget = TimeKeeper().budget(Options(time_manager=name), remaining_ms=remaining, increment_ms=1000)
    assert budget.hard_ms == 0


@pytest.mark.parametrize("remaining", [1.0, 10.0, 60.0, 150.0])
@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_clock_is_never_planned_beyond_half(name: str, remaining: float) -> None:
    budget = TimeKeeper().budget(Options(time_manager=name), remaining_ms=remaining, increment_ms=10_000)
    assert budget.hard_ms <= remaining / 2


def test_nonsense_moves_to_go_is_ignored() -> None:
    def budget(moves_to_go: int | None) -> object:
        return TimeKeeper().budget(Options(), remaining_ms=10_000, moves_to_go=moves_to_go)

    assert budget(0) == budget(-3) == budget(None)


# -- what each manager is known for ----------------------------------------------------------------------


def budget_of(manager: TimeManager, remaining: float, increment: float = 0.0, **more: int) -> float:
    return manager.budget(Situation(remaining, increment, **more)).soft_ms


def test_legacy_begins_with_a_bonus_and_spends_what_was_saved() -> None:
    """By hand from lc0's formula: 51.5 moves are left before the first, so 100 s are 1.94 s a move."""
    manager = new_manager("legacy")
    first = manager.budget(Situation(100_000))
    assert first.soft_ms == pytest.approx(2.8 * 100_000 / 51.5)
    manager.done(first, Spent(first.soft_ms - 1000, 1, 1, 1))
    even = (90_000 - 1000) / (51.5 - 1)
    assert budget_of(manager, 90_000, ply=2) == pytest.approx(even + 1000, rel=1e-4)


def test_legacy_counts_the_plies_of_the_opening_up_to_twelve() -> None:
    def first(ply: int) -> float:
        return budget_of(new_manager("legacy(midpoint-move=1000)"), 100_000, ply=ply) * (1000 - ply / 2)

    assert first(8) == pytest.approx(100_000 * (2.8 + 8 * 0.25))
    assert first(12) == pytest.approx(first(30))


def test_legacy_plans_up_to_the_time_control() -> None:
    assert budget_of(new_manager("legacy(first-move-bonus=0)"), 10_000, moves_to_go=10) == 1000


def test_simple_spends_a_growing_percentage_and_a_share_of_the_increment() -> None:
    assert budget_of(new_manager("simple"), 100_000) == pytest.approx(1400)
    assert budget_of(new_manager("simple"), 100_000, ply=100) == pytest.approx(1400 + 4900)
    assert budget_of(new_manager("simple"), 100_000, 1000) == pytest.approx(1400 + 1500)
    assert budget_of(new_manager("simple(opening-bonus-pct=50)"), 100_000) == pytest.approx(2100)


def test_simple_spends_what_was_saved_once() -> None:
    manager = new_manager("simple")
    manager.done(manager.budget(Situation(100_000)), Spent(1000, 1, 1, 1))
    assert budget_of(manager, 100_000) == pytest.approx(1400 + 400)


def test_alphazero_spends_the_same_percentage_always() -> None:
    assert budget_of(new_manager("alphazero"), 10_000) == pytest.approx(1200)
    assert budget_of(new_manager("alphazero(alphazero-time-pct=5)"), 10_000, ply=80) == pytest.approx(500)


def test_smooth_saves_and_lets_unsettled_searches_have_the_savings() -> None:
    budget = new_manager("smooth").budget(Situation(100_000))
    assert budget.hard_ms == pytest.approx(budget.soft_ms + 0.94 * 9000)
    frugal = new_manager("smooth(init-piggybank=0, per-move-piggybank=0)").budget(Situation(100_000))
    assert frugal.hard_ms == frugal.soft_ms > budget.soft_ms


@pytest.mark.parametrize("name", ["smooth", OURS])
def test_a_move_gets_less_time_the_more_of_the_tree_is_kept(name: str) -> None:
    """After a game in which 40 % were kept."""
    budgets = []
    for kept in (0, 2000, 8000):
        manager = new_manager(name)
        for number in range(10):
            granted = manager.budget(
                Situation(60_000, 600, ply=2 * number, kept_visits=4000 * min(1, number))
            )
            manager.done(granted, Spent(granted.soft_ms, granted.soft_ms, 10_000, 6000))
        budgets.append(budget_of(manager, 60_000, 600, ply=20, kept_visits=kept))
    assert budgets[0] > budgets[1] > budgets[2] > 0


def test_the_first_move_of_a_game_gets_more_than_the_second() -> None:
    budgets = play(Options(), 60_000, 600, moves=2, unsettled=0).budgets
    assert 1.3 * budgets[1] < budgets[0] < 4 * budgets[1]
    same = play(Options(time_manager="adaptive(first-move=1)"), 60_000, 600, moves=2, unsettled=0).budgets
    assert same[0] < budgets[0]


def test_trees_have_the_same_size_throughout_a_game() -> None:
    trees = play(Options(), 60_000, 0, moves=30, unsettled=0, used=0.8, kept=0.5).trees
    assert max(trees) < 1.1 * min(trees)


def test_time_that_searches_do_not_use_is_spent_by_larger_budgets() -> None:
    """After twenty moves that used half of their time."""
    budgets = []
    for share in (1.0, 0.5):
        manager = new_manager(OURS)
        for number in range(20):
            granted = manager.budget(Situation(60_000, 600, ply=2 * number))
            manager.done(granted, Spent(share * granted.soft_ms, 0, 0, 0))
        budgets.append(budget_of(manager, 60_000, 600, ply=40))
    assert 1.5 < budgets[1] / budgets[0] <= 2.1


def test_a_game_without_increment_has_time_left_after_150_moves() -> None:
    clocks = play(Options(), 300_000, lag=5, moves=150).clocks
    assert len(clocks) == 150
    assert clocks[-1] > 100

# SPDX-License-Identifier: GPL-3.0-or-later
"""The time manager: how many moves a game still has, and simulated clocks of whole games."""

from dataclasses import dataclass, field
from random import Random
from statistics import fmean

import pytest

from engine.options import Options
from engine.search.time.budget import Situation, Spent
from engine.search.time.keeper import TimeKeeper
from engine.search.time.manager import TimeManager, expected_moves, survival

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
) -> Played:
    """A game in which every move uses its budget, or that share of it, now and then the hard one, and costs
    up to twice `lag` more. Each finds the share `kept` of the tree before. Ends with the clock."""
    chance, keeper, played = Random(1), TimeKeeper(), Played()
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
def test_one_second_and_ten_milliseconds_a_move_lasts_for_any_game(lag: float) -> None:
    assert min(play(Options(), 1000, 10, lag=lag, moves=400).clocks) > 0


def test_reserve_survives_a_hiccup_at_1_s_and_10_ms() -> None:
    assert min(play(Options(), 1000, 10, lag=4, moves=400).clocks[20:]) > 50


USUAL = [(60, 0), (60, 1), (180, 2), (900, 10), (5400, 30)]


@pytest.mark.parametrize(("seconds", "increment"), USUAL)
def test_usual_time_controls_are_used_and_not_exceeded(seconds: int, increment: int) -> None:
    clocks = play(Options(), seconds * 1000, increment * 1000, lag=20, moves=80).clocks
    assert len(clocks) == 80
    assert min(clocks) > 0
    assert clocks[-1] < 0.2 * seconds * 1000, "most of the time should be used in 80 moves"


@pytest.mark.parametrize("moves_to_go", [1, 2, 10, 40, 100])
def test_classical_controls_reach_the_next_period(moves_to_go: int) -> None:
    assert min(play(Options(), 10_000, lag=5, moves=250, moves_to_go=moves_to_go).clocks) > 0


@pytest.mark.parametrize("slowmover", [0.01, 0.5, 3.0, 10.0])
def test_slowmover_never_loses_on_time(slowmover: float) -> None:
    options = Options(slowmover=slowmover)
    assert min(play(options, 5000, 50, lag=5, moves=300).clocks) > 0


def test_slowmover_multiplies_the_budget() -> None:
    def first(slowmover: float) -> float:
        return play(Options(slowmover=slowmover), 60_000, 600, moves=1).budgets[0]

    assert first(2.0) == pytest.approx(2 * first(1.0))
    assert first(0.5) == pytest.approx(0.5 * first(1.0))


@pytest.mark.parametrize("remaining", [-5000.0, -1.0, 0.0])
def test_an_exhausted_clock_means_a_move_at_once(remaining: float) -> None:
    budget = TimeKeeper().budget(Options(), remaining_ms=remaining, increment_ms=1000)
    assert budget.hard_ms == 0


@pytest.mark.parametrize("remaining", [1.0, 10.0, 60.0, 150.0])
def test_a_tiny_clock_is_never_planned_beyond_half(remaining: float) -> None:
    budget = TimeKeeper().budget(Options(), remaining_ms=remaining, increment_ms=10_000)
    assert budget.hard_ms <= remaining / 2


def test_nonsense_moves_to_go_is_ignored() -> None:
    def budget(moves_to_go: int | None) -> object:
        return TimeKeeper().budget(Options(), remaining_ms=10_000, moves_to_go=moves_to_go)

    assert budget(0) == budget(-3) == budget(None)


def budget_of(manager: TimeManager, remaining: float, increment: float = 0.0, **more: int) -> float:
    return manager.budget(Situation(remaining, increment, **more)).soft_ms


def test_a_move_gets_less_time_the_more_of_the_tree_is_kept() -> None:
    """After a game in which 40 % were kept."""
    budgets = []
    for kept in (0, 2000, 8000):
        manager = TimeManager()
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


def test_trees_have_the_same_size_throughout_a_game() -> None:
    trees = play(Options(), 60_000, 0, moves=30, unsettled=0, used=0.8, kept=0.5).trees
    assert max(trees) < 1.1 * min(trees)


def test_time_that_searches_do_not_use_is_spent_by_larger_budgets() -> None:
    """After twenty moves that used half of their time."""
    budgets = []
    for share in (1.0, 0.5):
        manager = TimeManager()
        for number in range(20):
            granted = manager.budget(Situation(60_000, 600, ply=2 * number))
            manager.done(granted, Spent(share * granted.soft_ms, 0, 0, 0))
        budgets.append(budget_of(manager, 60_000, 600, ply=40))
    assert 1.5 < budgets[1] / budgets[0] <= 2.1


def test_a_game_without_increment_has_time_left_after_150_moves() -> None:
    clocks = play(Options(), 300_000, lag=5, moves=150).clocks
    assert len(clocks) == 150
    assert clocks[-1] > 100


MIDPOINT, STEEPNESS = 51.5, 7.0


def lengths(games: int) -> list[float]:
    """Of games drawn from the distribution."""
    random = Random(1)
    shares = [random.random() for _ in range(games)]
    return [MIDPOINT * (share / (1 - share)) ** (1 / STEEPNESS) for share in shares]


def test_half_of_all_games_are_longer_than_the_midpoint() -> None:
    assert survival(MIDPOINT, MIDPOINT, STEEPNESS) == 0.5
    assert survival(0, MIDPOINT, STEEPNESS) == 1


@pytest.mark.parametrize("played", [0, 20, 40, 60, 90])
def test_estimate_is_the_mean_rest_of_games_that_long(played: int) -> None:
    left = [length - played for length in lengths(400_000) if length > played]
    mean = expected_moves(played, None, MIDPOINT, STEEPNESS)
    assert mean == pytest.approx(fmean(left) + 0.5, rel=0.03)  # whole moves, the one at hand included


def test_moves_beyond_a_time_control_do_not_count() -> None:
    assert expected_moves(10, 1, MIDPOINT, STEEPNESS) == 1
    assert expected_moves(10, 5, MIDPOINT, STEEPNESS) == pytest.approx(5, abs=0.01)
    # Of twenty moves from the 50th on, many games do not play all.
    assert 6 < expected_moves(50, 20, MIDPOINT, STEEPNESS) < 12
    assert expected_moves(0, 500, MIDPOINT, STEEPNESS) == expected_moves(0, None, MIDPOINT, STEEPNESS)


@pytest.mark.parametrize("played", [0, 100, 1000, 6000])
def test_there_is_always_a_move_to_come(played: int) -> None:
    assert expected_moves(played, None, MIDPOINT, STEEPNESS) >= 1

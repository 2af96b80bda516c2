"""The time manager, by simulating the clocks of whole games."""

from __future__ import annotations

import random

import pytest

from engine.search.clock import allocate


def play(
    remaining: float,
    increment: float,
    *,
    lag: float,
    moves: int = 200,
    moves_to_go: int | None = None,
    overhead: float = 100.0,
    unsettled: float = 0.2,
    slowmover: float = 1.0,
) -> list[float]:
    """The clock after each move of a game in which every move costs its budget (the hard one now and then)
    and up to twice `lag` more. Stops when the clock has run out."""
    chance = random.Random(1)
    control = remaining
    clocks: list[float] = []
    for number in range(1, moves + 1):
        left = None if moves_to_go is None else moves_to_go - (number - 1) % moves_to_go
        budget = allocate(
            remaining, increment, left, overhead_ms=overhead, slowmover=slowmover, fullmove=number
        )
        assert 0 <= budget.soft_ms <= budget.hard_ms
        spent = budget.hard_ms if chance.random() < unsettled else budget.soft_ms
        remaining -= spent + lag * 2 * chance.random()
        if remaining <= 0:
            return [*clocks, remaining]
        remaining += increment
        if left == 1:
            remaining += control
        clocks.append(remaining)
    return clocks


@pytest.mark.parametrize("lag", [0.0, 2.0, 8.0])
def test_one_second_and_ten_milliseconds_a_move_lasts_for_any_game(lag: float) -> None:
    assert min(play(1000, 10, lag=lag, moves=400)) > 0


def test_the_reserve_survives_a_hiccup_at_one_second_and_ten_milliseconds() -> None:
    assert min(play(1000, 10, lag=4, moves=400)[20:]) > 50


@pytest.mark.parametrize(("seconds", "increment"), [(60, 0), (60, 1), (180, 2), (900, 10), (5400, 30)])
def test_usual_time_controls_are_used_and_not_exceeded(seconds: int, increment: int) -> None:
    clocks = play(seconds * 1000, increment * 1000, lag=20, moves=80)
    assert len(clocks) == 80
    assert min(clocks) > 0
    assert clocks[-1] < 0.5 * seconds * 1000, "most of the time should be used in 80 moves"


@pytest.mark.parametrize("moves_to_go", [1, 2, 10, 40, 100])
def test_classical_controls_reach_the_next_period(moves_to_go: int) -> None:
    assert min(play(10_000, 0, lag=5, moves=250, moves_to_go=moves_to_go)) > 0


@pytest.mark.parametrize("slowmover", [0.01, 0.5, 3.0, 10.0])
def test_slowmover_never_loses_on_time(slowmover: float) -> None:
    assert min(play(5000, 50, lag=5, moves=300, slowmover=slowmover)) > 0


@pytest.mark.parametrize("remaining", [-5000.0, -1.0, 0.0])
def test_an_exhausted_clock_means_a_move_at_once(remaining: float) -> None:
    assert allocate(remaining, 1000).hard_ms == 0


@pytest.mark.parametrize("remaining", [1.0, 10.0, 60.0, 150.0])
def test_a_tiny_clock_is_never_planned_beyond_half(remaining: float) -> None:
    assert allocate(remaining, 10_000).hard_ms <= remaining / 2


def test_nonsense_moves_to_go_is_ignored() -> None:
    assert allocate(10_000, 0, 0) == allocate(10_000, 0, None)

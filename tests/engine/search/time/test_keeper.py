# SPDX-License-Identifier: GPL-3.0-or-later
"""A player's clock through a game: what is measured, and what is kept back for it."""

import pytest

from engine.options import Options
from engine.search.time.budget import Spent, TimeBudget
from engine.search.time.keeper import Lateness, TimeKeeper


def budget(keeper: TimeKeeper, remaining: float, ply: int, **more: float) -> TimeBudget:
    return keeper.budget(
        Options(move_overhead_ms=100), remaining_ms=remaining, ply=ply, **more  # type: ignore[arg-type]
    )  # fmt: skip


def spent(ms: float) -> Spent:
    return Spent(ms, ms, 1000, 500)


def test_a_quiet_machine_costs_the_overhead_and_no_more() -> None:
    lateness = Lateness()
    lateness.record_lateness(20)
    lateness.moved(5)
    assert lateness.reserve_ms(100) == 100
    assert lateness.reserve_ms(10) == 10 + 0.9 * 20 - 5


def test_a_long_delay_raises_the_reserve_and_is_forgotten() -> None:
    lateness = Lateness()
    lateness.record_lateness(300)
    assert lateness.reserve_ms(100) == 350
    for _ in range(20):
        lateness.moved(0)
    assert lateness.reserve_ms(100) == 100


def test_a_computer_that_slept_is_no_lateness() -> None:
    lateness = Lateness()
    lateness.record_lateness(60_000)
    lateness.moved(60_000)
    assert lateness.reserve_ms(100) == 100
    assert lateness.delay_ms == 0


def test_keeper_learns_the_delays_outside_the_search() -> None:
    """A hundred milliseconds a move that the search does not see."""
    keeper, remaining = TimeKeeper(), 60_000.0
    for number in range(40):
        budget(keeper, remaining, 2 * number, increment_ms=600)
        keeper.finished(spent(1000), 0)
        remaining += 600 - 1000 - 100
    assert keeper.lateness.delay_ms == pytest.approx(100, rel=0.05)
    assert keeper.lateness.reserve_ms(100) == pytest.approx(150)


def test_clocks_that_were_set_anew_are_not_compared() -> None:
    keeper = TimeKeeper()
    budget(keeper, 60_000, 0)
    keeper.finished(spent(1000), 0)
    budget(keeper, 50_000, 8)  # moves are missing
    keeper.finished(spent(1000), 0)
    budget(keeper, 48_500, 10, moves_to_go=1)
    keeper.finished(spent(1000), 0)
    budget(keeper, 46_000, 12, moves_to_go=40)  # a time control has passed
    assert keeper.lateness.delay_ms == pytest.approx(500 / 8)  # of the third move alone


def test_clock_lasts_when_the_delay_equals_the_increment() -> None:
    keeper, remaining = TimeKeeper(), 1000.0
    for number in range(300):
        granted = budget(keeper, remaining, 2 * number, increment_ms=10)
        keeper.finished(spent(granted.soft_ms), 0)
        remaining += 10 - granted.soft_ms - 10
        assert remaining > 20, number


def test_lateness_of_one_search_is_kept_back_by_the_next() -> None:
    quiet, busy = TimeKeeper(), TimeKeeper()
    for keeper, late in ((quiet, 0.0), (busy, 400.0)):
        budget(keeper, 1500, 0)
        keeper.finished(spent(10), late)
    assert budget(busy, 1490, 2).soft_ms < budget(quiet, 1490, 2).soft_ms


@pytest.mark.parametrize("told", [True, False])
def test_a_new_game_begins_with_the_bonus_of_a_first_move(told: bool) -> None:
    """It is seen by its ply if nobody tells."""
    keeper = TimeKeeper()
    first = budget(keeper, 60_000, 0)
    keeper.finished(spent(1000), 0)
    second = budget(keeper, 60_000, 2, kept_visits=400)
    assert second.soft_ms < first.soft_ms
    keeper.finished(spent(1000), 0)
    if told:
        keeper.new_game()
    assert budget(keeper, 60_000, 0) == first


def test_first_evaluation_may_cost_a_third_beyond_reserves() -> None:
    keeper = TimeKeeper()
    budget(keeper, 10_000, 0)
    assert keeper.first_evaluation_ms == pytest.approx(0.3 * (10_000 - 200))
    budget(keeper, 30, 64)
    assert keeper.first_evaluation_ms == pytest.approx(0.025 * 30)


def test_clock_lasts_when_evaluations_exceed_the_increment() -> None:
    keeper, remaining = TimeKeeper(), 1000.0
    for number in range(200):
        hard = budget(keeper, remaining, 2 * number, increment_ms=10).hard_ms
        took = max(hard, min(25.0, keeper.first_evaluation_ms))
        keeper.finished(spent(took), took - max(hard, keeper.first_evaluation_ms))
        remaining += 10 - took - 5
        assert remaining > 150, number


@pytest.mark.parametrize("cost_ms", [1.0, 2.0, 4.0])
def test_a_clock_without_increment_lasts_for_a_long_game(cost_ms: float) -> None:
    """Each move costs something besides its budget, and something more that the search does not see."""
    keeper, remaining = TimeKeeper(), 1000.0
    for ply in range(0, 280, 2):
        soft = budget(keeper, remaining, ply).soft_ms
        keeper.finished(spent(max(1.0, soft)), 0)
        remaining -= max(1.0, soft) + cost_ms
        assert remaining > 0, ply

# SPDX-License-Identifier: GPL-3.0-or-later
"""The method alone: gains, perturbations and steps."""

import pytest

from engine.apps.tune.spsa import Parameter, Spsa

CPUCT = Parameter("cpuct", 2.0, 1.0, 3.0, 0.2, 0.01)
VISITS = Parameter("transposition_visits", 16, 1, 32, 2, 0.01, integer=True)


def test_last_iteration_has_the_declared_size_and_step() -> None:
    spsa = Spsa((CPUCT,), 100)
    assert spsa.sizes(99) == (0.2,)
    (sign,) = spsa.perturbation(99).signs
    assert spsa.step(99, (2.0,), 3.0)[0] == pytest.approx(2.0 + 3 * 0.01 * 0.2 * sign)


def test_sizes_and_steps_decrease_as_spall_says() -> None:
    spsa = Spsa((CPUCT,), 1000)
    assert spsa.sizes(0)[0] == pytest.approx(0.2 * 1000**0.101)
    moves = [abs(spsa.step(iteration, (2.0,), 1.0)[0] - 2.0) for iteration in (0, 499, 999)]
    assert moves[0] / moves[2] == pytest.approx((1100 / 101) ** 0.602 / 1000**0.101)
    assert moves == sorted(moves, reverse=True)


def test_both_sides_are_equally_far_from_the_middle() -> None:
    spsa = Spsa((CPUCT,), 100)
    for iteration in range(20):
        plus, minus = (spsa.played(iteration, (2.0,), side)[0] for side in (1, -1))
        assert plus + minus == pytest.approx(4.0)
        assert abs(plus - minus) == pytest.approx(2 * spsa.sizes(iteration)[0])


def test_values_stay_in_their_range() -> None:
    spsa = Spsa((CPUCT,), 100)
    for iteration in range(20):
        assert all(1.0 <= spsa.played(iteration, (2.99,), side)[0] <= 3.0 for side in (1, -1))
        assert 1.0 <= spsa.step(iteration, (2.99,), 1e6)[0] <= 3.0


def test_whole_numbers_have_the_mean_of_their_value() -> None:
    spsa = Spsa((VISITS,), 2000)
    played = [spsa.played(iteration, (16.3,), side)[0] for iteration in range(2000) for side in (1, -1)]
    assert all(value == int(value) for value in played)
    assert sum(played) / len(played) == pytest.approx(16.3, abs=0.05)


def test_random_numbers_depend_on_seed_and_iteration_only() -> None:
    first, again, other = (Spsa((CPUCT, VISITS), 100, seed) for seed in (1, 1, 2))
    signs = [[spsa.perturbation(k).signs for k in range(50)] for spsa in (first, again, other)]
    assert signs[0] == signs[1] != signs[2]
    assert 10 < sum(a == b for a, b in signs[0]) < 40  # Signs of two parameters are independent.

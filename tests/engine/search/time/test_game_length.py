# SPDX-License-Identifier: GPL-3.0-or-later
"""How many moves a game still has."""

from random import Random
from statistics import fmean

import pytest

from engine.search.time.manager import expected_moves, survival

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

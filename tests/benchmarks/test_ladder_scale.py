# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmarks/strength/ladder/scale.py: ratings and errors of simulated results."""

import numpy as np
import pytest

from benchmarks.strength.ladder.scale import OpeningResult, Results, expected_scores, fit_scale

ELO = np.array([1300.0, 1500.0, 1750.0, 1900.0, 2200.0, 2400.0])
LABELS = {1: 1500.0, 3: 1900.0}
"""Labels that agree with ELO on the mean of the anchors."""


def simulated(rng: np.random.Generator, openings: int, *, draws: float = 0.6, tilt: float = 0.0) -> Results:
    """Results of `openings` openings of each neighbour and second neighbour on the scale.

    draws: share of the largest possible number of draws. tilt: share of the largest possible effect of an
    opening on White's score, which makes the two games of an opening depend on each other.
    """
    scores = expected_scores(ELO)
    played = []
    for first in range(len(ELO)):
        for second in range(first + 1, min(first + 3, len(ELO))):
            expected = scores[first, second]
            for _ in range(openings):
                shift = tilt * min(expected, 1 - expected) * rng.uniform(-1, 1)
                points = sum(game_points(rng, float(expected + sign * shift), draws) for sign in (1, -1))
                played.append(OpeningResult(first, second, points, 2))
    return Results.of(len(ELO), played)


def game_points(rng: np.random.Generator, expected: float, draws: float) -> float:
    drawn = draws * 2 * min(expected, 1 - expected)
    won = expected - drawn / 2
    chance = rng.random()
    return 1.0 if chance < won else 0.5 if chance < won + drawn else 0.0


def test_the_fit_recovers_ratings_within_its_errors() -> None:
    scale = fit_scale(simulated(np.random.default_rng(1), 400), LABELS)
    assert np.abs(scale.elo - ELO).max() < 40
    assert (np.abs(scale.elo - ELO) < 1.6 * scale.error).all()
    assert scale.error.max() < 40


@pytest.mark.parametrize(("draws", "tilt"), [(0.0, 0.0), (0.6, 0.0), (0.3, 0.9)])
def test_the_intervals_hold_95_percent_of_the_ratings(draws: float, tilt: float) -> None:
    rng = np.random.default_rng(2)
    runs = [fit_scale(simulated(rng, 40, draws=draws, tilt=tilt), LABELS) for _ in range(150)]
    covered = np.mean([np.abs(scale.elo - ELO) < scale.error for scale in runs])
    assert 0.92 < covered < 0.98
    spread = 1.96 * np.std([scale.elo for scale in runs], axis=0)
    assert np.mean([scale.error for scale in runs], axis=0) == pytest.approx(spread, rel=0.2)


def test_draws_make_the_errors_smaller_than_the_models() -> None:
    rng = np.random.default_rng(3)
    decisive = fit_scale(simulated(rng, 100, draws=0.0), LABELS)
    drawish = fit_scale(simulated(rng, 100, draws=0.9), LABELS)
    assert decisive.dispersion == pytest.approx(1, abs=0.15)
    assert drawish.dispersion < 0.6
    assert (drawish.error < decisive.error).all()


def test_the_mean_of_the_anchors_is_that_of_their_labels() -> None:
    scale = fit_scale(simulated(np.random.default_rng(4), 20), {0: 1000.0, 5: 3000.0})
    assert scale.elo[[0, 5]].mean() == pytest.approx(2000)
    assert scale.anchored == (0, 5)


def test_a_player_without_a_point_has_no_rating() -> None:
    openings = [OpeningResult(0, 1, 1.0, 2), OpeningResult(0, 1, 0.5, 1), OpeningResult(1, 2, 2.0, 2)]
    scale = fit_scale(Results.of(3, openings), {})
    assert np.isnan(scale.elo).tolist() == [False, False, True]
    assert scale.elo[0] == pytest.approx(0)
    assert scale.elo[:2].sum() == pytest.approx(0)


def test_no_results_rate_nobody() -> None:
    scale = fit_scale(Results.of(3, []), {0: 1500.0})
    assert np.isnan(scale.elo).all()

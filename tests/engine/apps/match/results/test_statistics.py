# SPDX-License-Identifier: GPL-3.0-or-later
"""Elo and its error bars, against values that fastchess and fishtest give, and by simulation."""

from math import inf, isnan

import numpy as np
import pytest

from engine.apps.match.results.statistics import (
    Tally,
    elo,
    elo_of_score,
    likelihood_of_superiority,
    normalised_elo,
    score_of_elo,
)


@pytest.mark.parametrize(
    ("tally", "expected", "error", "expected_normalised", "error_normalised", "los"),
    [
        (Tally(76, 123, 89), None, None, -20.76, 40.13, 0.1553),
        (Tally(136, 111, 96), 40.70, 30.43, 49.77, 36.77, 0.9960),
        (Tally(34, 0, 356), None, None, -508.44, 34.48, 0.0),
        (Tally(pairs=(34, 54, 63, 64, 75)), 55.58, 27.65, 57.94, 28.28, 1.0),
        (Tally(pairs=(332, 433, 498, 333, 334)), -8.64, 10.33, -9.17, 10.96, 0.0505),
        (Tally(pairs=(7895, 8757, 5685, 568, 9999)), -21.04, 2.95, -19.01, 2.65, 0.0),
    ],
)
def test_games_and_pairs_give_the_values_that_fastchess_gives(
    tally: Tally,
    expected: float | None,
    error: float | None,
    expected_normalised: float,
    error_normalised: float,
    los: float,
) -> None:
    if expected is not None:
        assert elo(tally).value == pytest.approx(expected, abs=0.01)
        assert elo(tally).error == pytest.approx(error, abs=0.01)
    assert normalised_elo(tally).value == pytest.approx(expected_normalised, abs=0.01)
    assert normalised_elo(tally).error == pytest.approx(error_normalised, abs=0.01)
    assert likelihood_of_superiority(tally) == pytest.approx(los, abs=1e-4)


def test_elo_and_score_are_inverse() -> None:
    assert score_of_elo(0) == 0.5
    assert score_of_elo(400) == pytest.approx(10 / 11)
    for difference in (-350.0, -1.0, 0.5, 120.0):
        assert elo_of_score(score_of_elo(difference)) == pytest.approx(difference)
    assert elo_of_score(1.0) == inf
    assert elo_of_score(0.0) == -inf


def test_the_other_player_sees_the_same_with_the_sign_turned() -> None:
    tally = Tally(40, 30, 20, (3, 5, 20, 9, 8))
    mine, theirs = elo(tally), elo(tally.reversed())
    assert theirs.value == pytest.approx(-mine.value)
    assert (theirs.low, theirs.high) == pytest.approx((-mine.high, -mine.low))
    assert likelihood_of_superiority(tally.reversed()) == pytest.approx(1 - likelihood_of_superiority(tally))
    assert tally.reversed().reversed() == tally


def test_results_all_alike_bound_the_difference_on_one_side() -> None:
    estimate = elo(Tally(10, 0, 0))
    # Ten wins: the score for which that has likelihood e^-1.92, exp(-1.92 / 10).
    assert estimate.low == pytest.approx(elo_of_score(np.exp(-(1.959964**2) / 20)), abs=0.2)
    assert (estimate.value, estimate.high) == (inf, inf)
    assert elo(Tally(0, 0, 10)).high == pytest.approx(-estimate.low)
    assert str(estimate) == "+inf (over +270)"
    assert str(normalised_elo(Tally(10, 0, 0))) == "+inf"
    assert str(normalised_elo(Tally(0, 0, 10))) == "-inf"
    assert str(normalised_elo(Tally(0, 10, 0))) == "+0"
    only_draws = elo(Tally(0, 10, 0))
    assert only_draws.value == 0
    assert -100 < only_draws.low < -20 < 20 < only_draws.high < 100


def test_nothing_is_known_without_games() -> None:
    assert isnan(elo(Tally()).value)
    assert isnan(normalised_elo(Tally()).value)
    assert isnan(likelihood_of_superiority(Tally()))
    assert str(elo(Tally())) == "–"


@pytest.mark.parametrize("difference", [0.0, 5.0, 20.0, 200.0])
def test_interval_holds_the_truth_in_95_percent(difference: float) -> None:
    from tests.engine.apps.match.results.simulation import pair_distribution

    random = np.random.default_rng(20)
    histograms = random.multinomial(250, pair_distribution(difference), size=2000)
    hits = 0
    for histogram in histograms:
        a, b, c, d, e = (int(count) for count in histogram)
        estimate = elo(Tally(pairs=(a, b, c, d, e)))
        hits += estimate.low <= difference <= estimate.high
    assert 0.93 <= hits / 2000 <= 0.97  # Four standard deviations of the share of hits are 1.9 %.

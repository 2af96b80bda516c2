# SPDX-License-Identifier: GPL-3.0-or-later
"""The SPRT against values that fastchess and fishtest give, and by simulated matches of known strength."""

from math import log

import numpy as np
import pytest

from engine.apps.match.results.likelihood import likeliest_with_mean, likeliest_with_t_value
from engine.apps.match.results.sprt import EloModel, Sprt
from engine.apps.match.results.statistics import PAIR_SCORES, Tally
from tests.engine.apps.match.results.simulation import pair_distribution

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("model", "elo0", "elo1", "counts", "expected"),
    [
        ("normalised", 0, 2, (36027, 68692, 36433), 0.92),
        ("normalised", -1.75, 0.25, (10650, 20431, 10871), 2.30),
        ("logistic", 0.5, 2.5, (21184, 40708, 21404), -1.57),
        ("logistic", 0, 2, (57030, 106593, 57433), -2.59),
        ("normalised", 0, 2, (365, 16618, 36229, 16974, 390), 2.25),
        ("normalised", -1.75, 0.25, (127, 4883, 10712, 5150, 104), 3.01),
        ("logistic", 0.5, 2.5, (223, 9863, 21279, 10037, 246), -3.07),
        ("logistic", 0, 2, (871, 26175, 55983, 26678, 821), -4.98),
    ],
)
def test_the_log_likelihood_ratio_is_the_one_that_fastchess_gives(
    model: EloModel, elo0: float, elo1: float, counts: tuple[int, ...], expected: float
) -> None:
    assert float(Sprt(elo0, elo1, model=model).llr_of_counts(counts)) == pytest.approx(expected, abs=0.005)


def test_it_decides_also_when_one_player_wins_everything() -> None:
    sprt = Sprt(0, 5, model="normalised")
    # With wins only, H0 and H1 are likeliest with nothing but wins and losses: one number, by hand.
    t = 2**0.5 * 5 * log(10) / 800
    win = 0.5 + t / (2 * (1 + t * t) ** 0.5)
    assert float(sprt.llr_of_counts((0, 0, 0, 0, 104))) == pytest.approx(104 * log(win / 0.5), abs=0.01)
    assert sprt.decide(sprt.llr(Tally(pairs=(0, 0, 0, 0, 200)))) == "H1"
    assert sprt.decide(sprt.llr(Tally(pairs=(200, 0, 0, 0, 0)))) == "H0"


@pytest.mark.parametrize("elo0", [-1000, -300, -100, 0, 200, 900])
def test_hypotheses_far_from_few_results_have_a_finite_ratio(elo0: float) -> None:
    equal = 4 * np.eye(5)
    few = np.random.default_rng(4).multinomial(3, np.full(5, 0.2), size=40)
    for counts in (equal, few):
        ratio = Sprt(elo0, elo0 + 100, model="normalised").llr_of_counts(counts)
        assert np.isfinite(ratio).all()
    lost, *_, won = Sprt(elo0, elo0 + 100, model="normalised").llr_of_counts(equal)
    assert lost < won


def test_the_bounds_are_walds() -> None:
    sprt = Sprt(0, 5, alpha=0.05, beta=0.1)
    assert sprt.upper == pytest.approx(log(0.9 / 0.05))
    assert sprt.lower == pytest.approx(log(0.1 / 0.95))
    assert sprt.decide(sprt.upper) == "H1"
    assert sprt.decide(sprt.lower) == "H0"
    assert sprt.decide(0.0) == "continue"


def test_nothing_is_decided_without_results() -> None:
    assert Sprt(0, 5).llr(Tally()) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"elo0": 5, "elo1": 5}, "below elo1"),
        ({"elo0": 0, "elo1": 5, "alpha": 0.6}, "alpha is between"),
        ({"elo0": 0, "elo1": 5, "beta": 0}, "beta is between"),
    ],
)
def test_a_test_that_cannot_be_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sprt(**arguments)  # type: ignore[arg-type]


def test_constrained_distributions_are_the_likeliest() -> None:
    random = np.random.default_rng(3)
    scores = np.array(PAIR_SCORES)
    frequencies = random.dirichlet(np.ones(5), size=50)
    found = likeliest_with_mean(frequencies, scores, 0.55)
    assert found.sum(axis=-1) == pytest.approx(np.ones(50))
    assert found @ scores == pytest.approx(np.full(50, 0.55))
    # Any other distribution of that mean is less likely: steps that keep sum and mean.
    steps = random.normal(size=(50, 5))
    basis, _ = np.linalg.qr(np.stack([np.ones(5), scores], axis=1))
    steps -= steps @ basis @ basis.T
    for size in (-1e-4, 1e-4):
        other = found + size * steps
        assert np.all(
            (frequencies * np.log(np.maximum(other, 1e-300))).sum(-1)
            < (frequencies * np.log(found)).sum(-1) + 1e-12
        )

    found = likeliest_with_t_value(frequencies, scores, 0.5, 0.1)
    mean = found @ scores
    deviation = np.sqrt((found * (scores - mean[:, None]) ** 2).sum(-1))
    assert (mean - 0.5) / deviation == pytest.approx(np.full(50, 0.1), abs=1e-6)


@pytest.mark.parametrize(("true_elo", "low", "high"), [(0, 0.0, 0.07), (5, 0.93, 1.0), (20, 0.999, 1.0)])
def test_error_rates_stay_inside_the_bounds(true_elo: float, low: float, high: float) -> None:
    """With a look after every 32 pairs; 2 % are four standard deviations of 5 % in 2000 matches."""
    sprt, random, distribution = Sprt(0, 5), np.random.default_rng(7), pair_distribution(true_elo)
    counts, active, accepted = np.zeros((2000, len(PAIR_SCORES))), np.arange(2000), 0
    while active.size:
        counts[active] += random.multinomial(32, distribution, size=active.size)
        ratios = sprt.llr_of_counts(counts[active])
        accepted += int((ratios >= sprt.upper).sum())
        active = active[(sprt.lower < ratios) & (ratios < sprt.upper)]
    assert low <= accepted / 2000 <= high

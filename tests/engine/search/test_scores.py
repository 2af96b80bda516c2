# SPDX-License-Identifier: GPL-3.0-or-later
"""Scores against the formulas that lc0 documents for its ScoreType, and their UCI text."""

from math import exp, tan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.options import Options
from engine.search.report import Line, Report
from engine.search.scores import SCORES
from engine.uci.text import best_move_line, info_lines
from tests.engine.uci.uci_process import GRAMMAR

WHOLE = st.integers(-1000, 1000)


def test_every_choice_of_the_option_is_a_unit() -> None:
    assert set(Options.setting("score_type").choices) == set(SCORES)


@pytest.mark.parametrize(
    ("kind", "wl", "score"),
    [
        ("centipawn", 0.5, 89.37),
        ("centipawn", 1.0, 12780.0),
        ("centipawn_2019", 0.5, 147.51),
        ("centipawn_2019", 1.0, 12800.0),
        ("centipawn_2018", 0.5, 284.13),
        ("centipawn_2018", 1.0, 12800.0),
        ("win_percentage", 0.5, 7500.0),
        ("Q", 0.5, 5000.0),
        ("W-L", -0.5, -5000.0),
    ],
)
def test_known_values(kind: str, wl: float, score: float) -> None:
    assert SCORES[kind](wl, 0.2, wl) == pytest.approx(score, rel=2e-3)


def test_the_value_of_a_draw_is_in_two_of_them() -> None:
    line = Line(("e2e4",), 1, 0.1, (0.4, 0.3, 0.3), 0, 0)
    changed = {kind for kind in SCORES if line.score(kind) != line.score(kind, draw_score=0.5)}
    assert changed == {"Q", "centipawn_with_drawscore"}
    assert line.score("Q", draw_score=0.5) == 2500
    assert line.score("centipawn_with_drawscore", 0.5) == round(90 * tan(1.5637541897 * 0.25))


def test_mu_is_the_usual_score_where_the_tails_are_too_thin() -> None:
    assert SCORES["WDL_mu"](0.999, 0.0005, 0.999) == 45 * tan(1.56728071628 * 0.999)
    assert SCORES["WDL_mu"](0.0, 1.0, 0.0) == 0.0


@given(
    st.sampled_from(sorted(SCORES.keys() - {"WDL_mu"})), WHOLE, WHOLE, st.floats(0, 1, allow_subnormal=False)
)
def test_a_better_result_never_scores_less_and_sides_agree(kind: str, a: int, b: int, share: float) -> None:
    low, high = min(a, b) / 1000, max(a, b) / 1000
    score = SCORES[kind]
    d = share * (1 - max(abs(low), abs(high)))
    assert score(low, d, low) <= score(high, d, high)
    if kind != "win_percentage":
        assert score(low, d, low) == pytest.approx(-score(-low, d, -low))


def line(q: float = 0.0, d: float = 0.0, mate: int | None = None) -> Line:
    return Line(("e2e4", "e7e5"), 10, q, ((1 - d + q) / 2, d, (1 - d - q) / 2), 80.0, 0.2, mate)


def test_wdl_mu_is_the_centre_of_the_logistic_tails() -> None:
    mu, width = 0.6, 0.3
    win, loss = 1 / (1 + exp((1 - mu) / width)), 1 / (1 + exp((1 + mu) / width))
    assert Line((), 1, win - loss, (win, 1 - win - loss, loss), 0, 0).score("WDL_mu") == 60


# No subnormal numbers: onnxruntime, which other tests load into the process, makes them zero.
@given(st.floats(-1, 1, allow_subnormal=False), st.floats(0, 1, allow_subnormal=False))
def test_every_evaluation_makes_a_well_formed_line(q: float, d: float) -> None:
    d = min(d, 1 - abs(q))
    for kind in SCORES:
        options = Options().changed(score_type=kind, show_wdl=True, show_moves_left=True)
        text = info_lines(Report("e2e4", None, (line(q, d),)), options)
        assert GRAMMAR.fullmatch(text)
        words = text.split()
        at = words.index("wdl")
        shares = [int(word) for word in words[at + 1 : at + 4]]
        assert sum(shares) == 1000
        assert min(shares) >= 0


def test_a_proven_mate_is_shown_as_one() -> None:
    assert " score mate -3 " in info_lines(Report("e2e4", None, (line(mate=-3),)), Options())


def test_best_moves() -> None:
    assert best_move_line(Report("e2e4", "e7e5")) == "bestmove e2e4 ponder e7e5"
    assert best_move_line(Report("e2e4", None)) == "bestmove e2e4"
    assert best_move_line(Report(None, None)) == "bestmove (none)"

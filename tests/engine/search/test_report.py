# SPDX-License-Identifier: GPL-3.0-or-later
"""Scores and their UCI text."""

from hypothesis import given
from hypothesis import strategies as st

from engine.options import Options
from engine.search.report import Line, Report
from engine.search.scores import SCORES
from engine.uci.text import best_move_line, info_lines
from tests.engine.uci.uci_process import GRAMMAR


def line(q: float = 0.0, d: float = 0.0, mate: int | None = None) -> Line:
    return Line(("e2e4", "e7e5"), 10, q, ((1 - d + q) / 2, d, (1 - d - q) / 2), 80.0, 0.2, mate)


def test_wdl_mu_is_the_centre_of_the_logistic_tails() -> None:
    from math import exp

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

# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as agreeing with the reference."""

import numpy as np
import pytest

from evaluator.backends.common.agreement import FP16, FP32, TIE, agreement
from evaluator.backends.common.probe import probe_batch
from protocol.batch import EvaluationBatch, PositionBatch

BATCH = PositionBatch(
    probe_batch(3).positions, np.array([0, 2, 2, 4], np.uint32), np.array([1, 2, 3, 4], np.uint16)
)
"""Two moves, none, and two."""


def evaluation(*logits: float, win: float = 0.5) -> EvaluationBatch:
    wdl = np.tile(np.array([win, 0.25, 0.75 - win], np.float32), (3, 1))
    return EvaluationBatch(np.array(logits, np.float32), wdl, np.zeros(3, np.float32))


def test_the_same_agrees() -> None:
    found = agreement(evaluation(1, 2, 3, 4), evaluation(1, 2, 3, 4), BATCH, FP32)
    assert (found.logits, found.wdl, found.spread) == (0, 0, 3)
    assert (found.same_best_move, found.as_good_a_move) == (1, 1)
    assert found.within(FP32)


def test_a_tie_is_reported_and_counts_as_the_same_move() -> None:
    close = TIE * FP16.logits / 2
    found = agreement(evaluation(0, close, 1, 0), evaluation(close, 0, 1, 0), BATCH, FP16)
    assert (found.same_best_move, found.as_good_a_move) == (0.5, 1)
    assert found.within(FP16)


def test_a_worse_move_does_not() -> None:
    behind = TIE * FP16.logits * 2
    found = agreement(evaluation(0, behind, 1, 0), evaluation(behind, 0, 1, 0), BATCH, FP16)
    assert (found.same_best_move, found.as_good_a_move) == (0.5, 0.5)
    assert not found.within(FP16)


def test_a_wide_spread_allows_more_where_the_tolerance_says_so() -> None:
    right, wrong = evaluation(0, 50, 1, 0), evaluation(0.4, 50, 1, 0)
    assert agreement(wrong, right, BATCH, FP16).within(FP16)
    assert not agreement(wrong, right, BATCH, FP32).within(FP32)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_agreement_fails_for_infinite_values(bad: float) -> None:
    right = evaluation(1, 2, 3, 4)
    assert not agreement(evaluation(1, 2, 3, bad), right, BATCH, FP16).within(FP16)
    assert not agreement(evaluation(1, 2, 3, 4, win=bad), right, BATCH, FP16).within(FP16)


def test_a_probability_that_is_off_is_seen() -> None:
    found = agreement(evaluation(1, 2, 3, 4, win=0.51), evaluation(1, 2, 3, 4), BATCH, FP16)
    assert found.wdl == pytest.approx(0.01, abs=1e-6)
    assert not found.within(FP16)

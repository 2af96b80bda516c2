# SPDX-License-Identifier: GPL-3.0-or-later
"""What an evaluator is expected to take. Times are what the test says they are."""

import pytest

from engine.evaluation.spread.estimate import FORGET_SECONDS, HIGHEST, LOWEST, UNMEASURED, SpeedEstimate

CURVE = ((1, 2.0), (10, 5.0), (100, 20.0))


def test_the_curve_says_what_a_request_takes() -> None:
    speed = SpeedEstimate(CURVE)
    assert [speed.curve_ms(positions) for positions in (1, 2, 10, 11, 100, 200)] == [2, 5, 5, 20, 20, 40]
    assert speed.rate == 5000
    assert speed.share_ms(50) == 10.0
    for without in ((), ((1, 0.0), (64, 0.0)), ((0, 1.0),)):
        assert SpeedEstimate(without).curve_ms(64) == UNMEASURED[-1][1]


def test_evaluator_is_believed_less_when_it_takes_longer() -> None:
    speed = SpeedEstimate(CURVE)
    assert speed.slowness(0.0) == 1.0
    factors = []
    for _ in range(40):
        speed.learn(5.0, 20.0, 100.0)
        factors.append(speed.slowness(100.0))
    assert factors == sorted(factors)
    assert factors[-1] == pytest.approx(4.0, rel=0.01)
    for _ in range(40):
        speed.learn(5.0, 2.5, 100.0)
    assert speed.slowness(100.0) == pytest.approx(0.5, rel=0.05)


def test_one_that_was_slow_is_tried_again_after_a_while() -> None:
    speed = SpeedEstimate(CURVE)
    for _ in range(100):
        speed.learn(1.0, 9.0, 100.0)
    assert speed.slowness(100.0 + FORGET_SECONDS) == pytest.approx(5.0, rel=0.01)
    assert speed.slowness(100.0 + 20 * FORGET_SECONDS) == pytest.approx(1.0, abs=0.01)


def test_no_answer_makes_one_useless_or_free() -> None:
    speed = SpeedEstimate(CURVE)
    for _ in range(200):
        speed.learn(1e-9, 1e9, 100.0)
    assert speed.slowness(100.0) == HIGHEST
    for _ in range(500):
        speed.learn(5.0, 0.0, 100.0)
    assert speed.slowness(100.0) == LOWEST


def test_one_that_refuses_for_its_queue_is_taken_for_slow() -> None:
    speed = SpeedEstimate(CURVE)
    speed.refused(100.0)
    speed.refused(100.0)
    assert speed.slowness(100.0) == 4.0

# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of a search, without the time in which the evaluator was not there."""

import pytest

from engine.search.loop.stopping import Pace

START = 100.0


def searched(
    pace: Pace, seconds: float, per_second: int, *, begin: float = START, playouts: int = 0
) -> float:
    """Look at a search every 10 ms; returns when it ended."""
    for step in range(1, round(seconds * 100) + 1):
        pace.look(begin + step / 100, playouts + step * per_second // 100)
    return begin + seconds


def test_the_speed_is_playouts_over_time() -> None:
    pace = Pace()
    now = searched(pace, 1.0, 1000)
    assert pace.per_second(now) == pytest.approx(1000)


def test_nothing_is_reported_of_a_search_that_has_hardly_begun() -> None:
    pace = Pace()
    assert pace.per_second(START) is None
    now = searched(pace, 0.02, 1000)
    assert pace.per_second(now) is None


def test_the_wait_for_the_first_evaluation_does_not_count() -> None:
    pace = Pace()
    now = searched(pace, 1.0, 1000, begin=START + 5)
    assert pace.per_second(now) == pytest.approx(1000)
    assert pace.seconds == pytest.approx(0.99)


def test_an_outage_of_the_evaluator_does_not_count() -> None:
    pace = Pace()
    now = searched(pace, 1.0, 1000)
    assert pace.per_second(now + 2.0) is None, "while it lasts nothing is known"
    now = searched(pace, 1.0, 1000, begin=now + 2.0, playouts=1000)
    assert pace.per_second(now) == pytest.approx(1000, rel=0.01)
    assert pace.seconds == pytest.approx(2.0, rel=0.02)


def test_a_slow_device_is_not_an_outage() -> None:
    """Batches of 0.2 s, then, as another program wants the device, of 0.6 s."""
    pace = Pace()
    now = START
    for batch in range(40):
        pace.look(now, 8 * (batch + 1))
        now += 0.2 if batch < 20 else 0.6
    assert pace.per_second(now - 0.6) == pytest.approx(8 * 39 / (20 * 0.2 + 19 * 0.6))


def test_the_search_before_tells_the_speed_of_the_first_moment() -> None:
    pace = Pace(known_per_second=1000)
    pace.look(START, 8)
    assert pace.per_second(START) == pytest.approx(1000)
    now = searched(pace, 1.0, 500, playouts=8)
    assert 500 < (pace.per_second(now) or 0) < 550

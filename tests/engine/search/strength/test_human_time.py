# SPDX-License-Identifier: GPL-3.0-or-later
"""HumanTime: times that a person could take."""

from random import Random
from statistics import median

import pytest

from engine.search.limits import Clock
from engine.search.report import Line, Report
from engine.search.strength.human_time import LARGEST_SHARE, believable_seconds


def report_with(prior: float) -> Report:
    line = Line(("e2e4",), visits=1, q=0.0, wdl=(0.3, 0.4, 0.3), moves_left=50.0, prior=prior)
    return Report(best_move="e2e4", ponder=None, lines=(line,))


def times(clock: Clock, fullmove: int = 20, prior: float = 0.3, forced: bool = False) -> list[float]:
    random = Random(3)
    return [
        believable_seconds(clock, "white", fullmove, report_with(prior), forced=forced, random=random)
        for _ in range(1000)
    ]


BLITZ = Clock(180_000, 60_000, 2_000, 2_000)


def test_times_vary_around_a_share_of_the_clock() -> None:
    taken = times(BLITZ)
    assert 3 < median(taken) < 8
    assert max(taken) > 3 * min(taken)
    assert all(0 < seconds <= LARGEST_SHARE * 180 for seconds in taken)


def test_openings_obvious_and_forced_moves_are_fast() -> None:
    assert median(times(BLITZ, fullmove=3)) < median(times(BLITZ)) / 2
    assert median(times(BLITZ, prior=0.9)) < median(times(BLITZ)) / 2
    assert max(times(BLITZ, forced=True)) <= 1


@pytest.mark.parametrize("left_ms", [0, 100, 5_000])
def test_a_low_clock_is_never_used_up(left_ms: int) -> None:
    assert max(times(Clock(left_ms, 60_000, 5_000, 5_000))) <= LARGEST_SHARE * (left_ms / 1000)


def test_without_a_clock_no_time_is_taken() -> None:
    assert times(Clock(None, 60_000)) == [0.0] * 1000

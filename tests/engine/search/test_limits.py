# SPDX-License-Identifier: GPL-3.0-or-later
"""The latency that a search asks a shared evaluator for, by its clock."""

import pytest

from engine.search.limits import QUICK_MS, Clock, Limits
from evaluator.settings import Settings


@pytest.mark.parametrize(
    ("limits", "target_ms"),
    [
        (Limits(clock=Clock(15_000, 15_000)), 15_000 / 40 / 32),
        (Limits(clock=Clock(1_000, 600_000)), 1.0),
        (Limits(clock=Clock(60_000, 60_000, 1000, 1000)), None),
        (Limits(clock=Clock(600_000, 600_000, 5000, 5000)), None),
        (Limits(movetime_ms=320), 10.0),
        (Limits(movetime_ms=5000), None),
        (Limits(nodes=100), None),
        (Limits(infinite=True), None),
    ],
)
def test_a_search_with_little_time_asks_for_a_short_latency(limits: Limits, target_ms: float | None) -> None:
    assert limits.target_ms("white") == (None if target_ms is None else pytest.approx(target_ms))


def test_the_side_to_move_decides() -> None:
    limits = Limits(clock=Clock(600_000, 8_000))
    assert limits.target_ms("white") is None
    assert limits.target_ms("black") == pytest.approx(8_000 / 40 / 32)


def test_the_engine_knows_the_default_target_of_class_play() -> None:
    assert Settings().play_latency_ms == QUICK_MS

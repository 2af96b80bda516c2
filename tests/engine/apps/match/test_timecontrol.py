# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits and clocks."""

import pytest

from engine.apps.match.timecontrol import GameClock, TimeControl


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("60", (60_000, 0, None)),
        ("60+0.6", (60_000, 600, None)),
        ("1+0.01", (1000, 10, None)),
        ("40/90:00+30", (5_400_000, 30_000, 40)),
        ("1:30", (90_000, 0, None)),
        ("0.1", (100, 0, None)),
    ],
)
def test_clocks_are_read(text: str, expected: tuple[int, int, int | None]) -> None:
    assert TimeControl.parse_clock(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "is not a clock: write") for text in ("", "fast", "-1", "60+", "60+0.6+1", "1e9")),
        ("0", "must be above 0"),
        ("0/60", "must be above 0"),
        ("99999999999", "more than a hundred days"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TimeControl.parse_clock(text)


def test_the_increment_is_added_after_the_move() -> None:
    clock = GameClock(TimeControl(base_ms=1000, increment_ms=100))
    assert clock.spend(300)
    assert clock.remaining_ms == 800


def test_the_time_is_up_when_it_is_overdrawn_by_more_than_the_margin() -> None:
    assert not GameClock(TimeControl(base_ms=1000)).spend(1000.1)
    clock = GameClock(TimeControl(base_ms=1000, increment_ms=10), margin_ms=50)
    assert clock.spend(1050)
    assert clock.remaining_ms == 10
    assert not clock.spend(61)


def test_a_new_period_begins_after_its_moves() -> None:
    clock = GameClock(TimeControl(base_ms=1000, moves=2))
    assert clock.moves_to_go == 2
    clock.spend(400)
    assert (clock.remaining_ms, clock.moves_to_go) == (600, 1)
    clock.spend(400)
    assert (clock.remaining_ms, clock.moves_to_go) == (1200, 2)


def test_a_time_per_move_bounds_each_move() -> None:
    clock = GameClock(TimeControl(movetime_ms=100), margin_ms=20)
    assert clock.allowed_ms == 120
    assert clock.spend(119)
    assert clock.spend(119)
    assert not clock.spend(121)


def test_without_a_limit_of_time_nothing_is_too_long() -> None:
    clock = GameClock(TimeControl(nodes=100))
    assert clock.allowed_ms is None
    assert clock.spend(1e9)


def test_limits_read_well() -> None:
    assert str(TimeControl(base_ms=60_000, increment_ms=600)) == "60+0.6"
    assert str(TimeControl(base_ms=5_400_000, moves=40)) == "40/5400"
    assert str(TimeControl(movetime_ms=100, nodes=5)) == "0.1/move, 5 nodes"
    assert str(TimeControl()) == "unlimited"

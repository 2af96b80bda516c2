# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmarks/service/soak_verdict.py: what it says of memory and of a log."""

import json
import math

import pytest

from benchmarks.service.soak_verdict import Sample, read_log, slope


def samples(*, grows: float, seconds: int = 600, attacked: bool = False) -> list[Sample]:
    """Sizes of a process each second; grows: MB a minute, after it has become warm."""
    return [
        Sample(
            second,
            int(1e6 * (100 - 50 * (second < 60) + grows * second / 60 + 64 * (attacked and second % 8 < 3))),
            20,
            50,
        )
        for second in range(seconds)
    ]


def line(level: str, message: str, exception: str = "") -> str:
    return json.dumps({"level": level, "message": message} | ({"exception": exception} if exception else {}))


@pytest.mark.parametrize("attacked", [False, True])
def test_growth_is_found_beneath_attacks_and_after_the_warm_up(attacked: bool) -> None:
    assert slope(samples(grows=0, attacked=attacked)) == pytest.approx(0, abs=0.05)
    assert slope(samples(grows=2, attacked=attacked)) == pytest.approx(2, abs=0.05)


def test_too_few_samples_say_nothing() -> None:
    assert math.isnan(slope([]))
    assert math.isnan(slope(samples(grows=1, seconds=10)))


def test_the_log_of_a_device_that_falters_is_as_it_should_be() -> None:
    said, wrong = read_log(
        [
            line("info", "ready"),
            line("warning", "closed 3 connections"),
            line("warning", "closed 12 connections"),
            line("error", "2:faltering hangs; network first is run elsewhere"),
        ]
    )
    assert said["warning: closed # connections"] == 2
    assert not wrong


@pytest.mark.parametrize(
    "entry",
    [
        "Traceback (most recent call last):",
        line("error", "a message could not be handled", "Traceback …\nKeyError: 5"),
        line("warning", "a fault", "Traceback …"),
        line("error", "no batch could be chosen"),
    ],
)
def test_verdict_lists_unexpected_log_lines(entry: str) -> None:
    _, wrong = read_log([line("info", "ready"), entry])
    assert len(wrong) == 1

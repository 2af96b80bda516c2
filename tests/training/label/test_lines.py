# SPDX-License-Identifier: GPL-3.0-or-later
"""Of a search's output, the lines of the last complete iteration count."""

import pytest

from training.label.lines import EngineLine, parse_lines


def output(*lines: str) -> bytes:
    return ("\n".join(lines) + "\nbestmove e2e4\n").encode()


def test_one_line_is_the_last_whose_score_is_no_bound() -> None:
    text = output(
        "info string hello pv e2e4",
        "info depth 1 seldepth 1 score cp 10 nodes 20 pv e2e4 e7e5",
        "info depth 2 score cp 25 nodes 50 pv d2d4",
        "info depth 3 score cp 90 lowerbound nodes 80 pv c2c4",
        "info depth 3 currmove e2e4 currmovenumber 1",
    )
    assert parse_lines(text, 1) == [EngineLine("d2d4", 25, 2)]


def test_several_lines_are_of_one_depth_and_sorted_by_score() -> None:
    text = output(
        "info depth 1 multipv 1 score cp 10 pv e2e4",
        "info depth 1 multipv 2 score cp 5 pv d2d4",
        "info depth 2 multipv 1 score cp 11 pv e2e4",
        "info depth 2 multipv 2 score cp 12 pv d2d4",
        "info depth 3 multipv 1 score cp 99 pv g1f3",
        "info depth 2 multipv 2 score cp 11 pv e2e4",
    )
    assert parse_lines(text, 2) == [EngineLine("d2d4", 12, 2), EngineLine("e2e4", 11, 2)]


def test_a_move_that_is_listed_twice_makes_no_complete_iteration() -> None:
    text = output(
        "info depth 4 multipv 1 score cp 10 pv e2e4",
        "info depth 4 multipv 2 score cp 5 pv d2d4",
        "info depth 5 multipv 1 score cp 30 pv d2d4",
        "info depth 5 multipv 2 score cp 20 pv d2d4",
    )
    assert [line.depth for line in parse_lines(text, 2)] == [4, 4]


def test_fullest_iteration_is_used_when_none_is_complete() -> None:
    text = output(
        "info depth 1 multipv 1 score cp 10 pv e2e4",
        "info depth 1 multipv 2 score cp 5 pv d2d4",
        "info depth 2 multipv 1 score cp 11 pv c2c4",
    )
    assert [line.move for line in parse_lines(text, 3)] == ["e2e4", "d2d4"]
    assert parse_lines(output("info depth 1 score cp 3"), 1) == []


@pytest.mark.parametrize(
    ("score", "cp"),
    [
        ("mate 1", 31_999),
        ("mate -3", -31_997),
        ("mate 5000", 31_100),
        ("cp 77777", 31_000),
        ("cp -40000", -31_000),
    ],
)
def test_mates_and_other_scores_do_not_meet(score: str, cp: int) -> None:
    assert parse_lines(output(f"info depth 7 score {score} pv e2e4"), 1) == [EngineLine("e2e4", cp, 7)]

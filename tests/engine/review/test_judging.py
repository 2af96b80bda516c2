# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of moves, decisive moves and accuracy, as pure functions."""

from __future__ import annotations

import chess
import pytest

from engine.review.accuracy import game_accuracy, move_accuracy
from engine.review.judging import Searched, critical, decisive, judge, mark_of
from engine.review.openings import names, opening_of


def searched(expected: float, best: str | None = None) -> Searched:
    return Searched((expected, 0.0, 1 - expected), best, (best,) if best else ())


@pytest.mark.parametrize(
    ("loss", "mark"),
    [(0.0, ""), (0.049, ""), (0.05, "inaccuracy"), (0.1, "mistake"), (0.2, "blunder"), (0.9, "blunder")],
)
def test_a_move_is_marked_by_what_it_loses(loss: float, mark: str) -> None:
    assert mark_of(searched(0.9, "e2e4"), loss, after=0.5, is_best=False) == mark


def test_a_move_that_keeps_a_won_position_is_no_mistake() -> None:
    assert mark_of(searched(1.0, "e2e4"), 0.14, after=0.86, is_best=False) == "inaccuracy"
    assert mark_of(searched(1.0, "e2e4"), 0.16, after=0.84, is_best=False) != "inaccuracy"


@pytest.mark.parametrize(
    ("second", "prior", "mark"),
    [(0.3, 0.1, "only move"), (0.3, 0.9, ""), (0.45, 0.1, ""), (None, 0.1, "")],
)
def test_the_only_move_is_marked_unless_it_is_obvious(second: float | None, prior: float, mark: str) -> None:
    before = Searched((0.5, 0.0, 0.5), "e2e4", ("e2e4",), second=second, prior=prior)
    assert mark_of(before, 0.0, after=0.5, is_best=True) == mark


def test_a_loss_is_the_difference_for_the_mover_and_the_best_move_loses_nothing() -> None:
    moves = [chess.Move.from_uci(uci) for uci in ("f2f3", "e7e5", "g2g4", "d8h4")]
    positions = [
        searched(0.5, "e2e4"),
        searched(0.6, "e7e5"),  # Black's view: f3 lost 0.1.
        searched(0.35, "b1c3"),
        searched(1.0, "d8h4"),  # g4 lost all that was left.
        Searched((0.0, 0.0, 1.0)),
    ]
    f3, e5, g4, mate = judge(chess.Board(), moves, positions, [None] * 4)
    assert f3.loss == pytest.approx(0.1) and f3.mark == "mistake" and f3.best == "e4"
    assert e5.loss == 0 and e5.mark == ""
    assert g4.mark == "blunder" and g4.label == "2. g4??" and g4.phase == "opening"
    assert mate.loss == 0 and mate.label == "2... Qh4#"
    assert decisive([f3, e5, g4, mate], "0-1") is g4
    assert decisive([f3, e5, g4, mate], "1/2-1/2") is None
    assert critical([f3, e5, g4, mate], 1) == [g4]
    assert critical([f3, e5, g4, mate], 1, decisive=f3.ply) == [f3]
    assert g4.line == ("Nc3",) and mate.line == ()


def test_a_missed_win_is_noted() -> None:
    moves = [chess.Move.from_uci("e2e4")]
    (review,) = judge(chess.Board(), moves, [searched(0.95, "d2d4"), searched(0.5, "e7e5")], [12.0])
    assert review.missed_win and review.clock == 12.0


@pytest.mark.parametrize(("before", "after", "accuracy"), [(50, 50, 100.0), (50, 60, 100.0), (100, 0, 0.0)])
def test_accuracy_of_a_move(before: float, after: float, accuracy: float) -> None:
    assert move_accuracy(before, after) == accuracy


def test_accuracy_falls_with_the_loss() -> None:
    assert 60 < move_accuracy(60, 50) < 75
    assert move_accuracy(60, 50) > move_accuracy(60, 40)


def test_the_side_that_errs_is_less_accurate() -> None:
    percentages = [50.0] * 10 + [50, 20, 22, 21, 20, 23, 21, 20, 22, 21]  # White errs at the eleventh ply.
    white, black = game_accuracy(percentages)
    assert white is not None and black is not None
    assert white < 90 < black
    assert game_accuracy([50.0]) == (None, None)


def test_openings_are_named_by_position() -> None:
    assert len(names()) == 3807
    najdorf = ["e2e4", "c7c5", "g1f3", "d7d6", "d2d4", "c5d4", "f3d4", "g8f6", "b1c3", "a7a6", "a2a4"]
    assert opening_of(map(chess.Move.from_uci, najdorf)) == ("B90", "Sicilian Defense: Najdorf Variation")
    transposed = ["d2d4", "d7d5", "c2c4"]
    other = ["c2c4", "d7d5", "d2d4"]
    assert opening_of(map(chess.Move.from_uci, transposed)) == opening_of(map(chess.Move.from_uci, other))
    assert opening_of([]) is None


@pytest.mark.parametrize(
    ("values", "ply"), [((0.5, 0.45, 0.3, 0.27, 0.24, 0.2), 2), ((0.5, 0.4, 0.35), None)]
)
def test_a_drift_into_a_lost_position_has_its_largest_loss_as_decisive(
    values: tuple[float, ...], ply: int | None
) -> None:
    uci = ("g1f3", "g8f6", "f3g1", "f6g8")
    moves, positions = [], [searched(values[0], "e2e4")]
    for index, value in enumerate(values[1:]):
        moves += [chess.Move.from_uci(uci[2 * index % 4]), chess.Move.from_uci(uci[2 * index % 4 + 1])]
        positions += [searched(1 - value, moves[-1].uci()), searched(value, "e2e4")]
    found = decisive(judge(chess.Board(), moves, positions, [None] * len(moves)), "0-1")
    assert (found.ply if found else None) == ply

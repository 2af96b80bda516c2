# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of moves, decisive moves and accuracy, as pure functions."""

from dataclasses import replace
from random import Random

import chess
import pytest

from engine.apps.review.accuracy import accuracies, move_accuracy
from engine.apps.review.judging import (
    PHASES,
    MoveTime,
    Searched,
    backed_up,
    decisive,
    judge,
    losses,
    lost_with,
    mark_of,
    slid,
)
from engine.apps.review.scale import Score
from engine.search.named_openings import names, opening_of


def score(expected: float) -> Score:
    return Score((expected, 0.0, 1 - expected), 0.0)


def searched(expected: float, best: str | None = None, second: float | None = None) -> Searched:
    other = None if second is None else score(second)
    return Searched(score(expected), best, (best,) if best else (), other)


def moves_of(*ucis: str) -> list[chess.Move]:
    return [chess.Move.from_uci(uci) for uci in ucis]


@pytest.mark.parametrize(
    ("loss", "mark"),
    [(0.0, ""), (0.079, ""), (0.08, "inaccuracy"), (0.12, "mistake"), (0.2, "blunder"), (0.9, "blunder")],
)
def test_a_move_is_marked_by_what_it_loses(loss: float, mark: str) -> None:
    assert mark_of(searched(0.9, "e2e4"), loss, is_best=False) == mark


@pytest.mark.parametrize(
    ("second", "prior", "mark"), [(0.3, 0.1, "only move"), (0.3, 0.9, ""), (0.45, 0.1, ""), (None, 0.1, "")]
)
def test_the_only_move_is_marked_unless_it_is_obvious(second: float | None, prior: float, mark: str) -> None:
    other = None if second is None else score(second)
    before = Searched(score(0.5), "e2e4", ("e2e4",), second=other, prior=prior)
    assert mark_of(before, 0.0, is_best=True) == mark


def test_loss_is_the_difference_for_the_mover() -> None:
    moves = moves_of("f2f3", "e7e5", "g2g4", "d8h4")
    positions = [
        searched(0.5, "e2e4"),
        searched(0.65, "e7e5"),  # Black's view: f3 lost 0.15.
        searched(0.35, "b1c3"),
        searched(1.0, "d8h4"),  # g4 lost all that was left.
        Searched(Score.of((0.0, 0.0, 1.0))),
    ]
    f3, e5, g4, mate = judge(chess.Board(), moves, positions, [MoveTime()] * 4)
    assert f3.loss == pytest.approx(0.15) and f3.mark == "mistake" and f3.best == "e4"
    assert e5.loss == 0 and e5.mark == ""
    assert g4.mark == "blunder" and g4.label == "2. g4??" and g4.phase == "opening"
    assert mate.loss == 0 and mate.label == "2... Qh4#"
    assert g4.line == ("Nc3",) and g4.reply == ("Qh4#",) and mate.line == ()


def test_a_move_without_a_verdict_has_no_mark_and_both_lines() -> None:
    positions = [searched(0.9, "d2d4"), searched(0.9, "e7e5")]
    (review,) = judge(chess.Board(), moves_of("e2e4"), positions, [MoveTime()], unclear={0})
    assert review.unclear and not review.mark and not review.missed_win and not review.reasons
    assert review.line == ("d4",) and review.reply == ("e5",)


def test_a_missed_win_is_noted() -> None:
    positions = [searched(0.95, "d2d4"), searched(0.5, "e7e5")]
    (review,) = judge(chess.Board(), moves_of("e2e4"), positions, [MoveTime(12.0, 3.0)])
    assert review.missed_win and review.clock == 12.0 and review.spent == 3.0


def test_a_later_search_that_knows_more_corrects_the_position_before() -> None:
    # The search after Black's reply finds that White wins: so White won before it, and g3 lost nothing.
    moves = moves_of("g2g3", "a7a6")
    positions = [searched(0.5, "e2e4"), searched(0.5, "a7a6", second=0.1), searched(0.9, "e2e4")]
    assert [each.expected for each in backed_up(moves, positions)] == pytest.approx([0.9, 0.1, 0.9])
    # With another move that holds, it is the reply that lost.
    positions[1] = searched(0.5, "a7a6", second=0.45)
    assert losses(backed_up(moves, positions)) == pytest.approx([0.0, 0.35])


def test_a_proven_position_is_not_corrected_by_the_game() -> None:
    positions = [Searched(score(1.0), "d8h4", ("d8h4",), mate=1), searched(0.4, "e2e4")]
    assert losses(backed_up(moves_of("a7a6"), positions)) == pytest.approx([0.4])


@pytest.mark.parametrize(
    ("loser", "ply"),
    [
        ((0.5, 0.45, 0.44, 0.1, 0.1, 0.0), 2),
        ((0.5, 0.1, 0.1, 0.1, 0.5, 0.05), 4),  # The first mistake was answered by another one.
        ((0.5, 0.5, 0.3, 0.3, 0.3, 0.05), 4),
        ((0.5, 0.5, 0.5, 0.4), None),  # It was not lost at the end.
        ((), None),
    ],
)
def test_game_is_lost_by_its_largest_final_loss(loser: tuple[float, ...], ply: int | None) -> None:
    assert lost_with(loser, first=True) == ply


def test_only_a_move_of_the_loser_loses_the_game() -> None:
    white = [0.5, 0.1, 0.1, 0.1]
    assert decisive(white, "0-1", white_begins=True) == 0
    assert decisive(white, "0-1", white_begins=False) is None
    assert decisive([1 - each for each in white], "1-0", white_begins=False) == 0
    assert decisive(white, "1/2-1/2", white_begins=True) is None


def test_scores_are_symmetric_and_certain_results_stay() -> None:
    assert Score.of((0.0, 1.0, 0.0)) == Score((0.0, 1.0, 0.0), 0.0)
    better = Score.of((0.6, 0.3, 0.1))
    assert better.turned() == Score.of((0.1, 0.3, 0.6)) and better.pawns > 0
    assert sum(better.wdl) == pytest.approx(1) and better.expected > 0.6


@pytest.mark.parametrize(("before", "after", "accuracy"), [(50, 50, 100.0), (50, 60, 100.0), (100, 0, 0.0)])
def test_accuracy_of_a_move(before: float, after: float, accuracy: float) -> None:
    assert move_accuracy(before, after) == accuracy


def test_accuracy_falls_with_the_loss() -> None:
    assert 60 < move_accuracy(60, 50) < 75
    assert move_accuracy(60, 50) > move_accuracy(60, 40)


def test_the_side_that_errs_is_less_accurate() -> None:
    percentages = [50.0] * 10 + [50, 20, 22, 21, 20, 23, 21, 20, 22, 21]  # White errs at the eleventh ply.
    white, black = accuracies(percentages, [""] * 19)[""]
    assert white is not None and black is not None
    assert white < 90 < black
    assert accuracies([50.0], []) == {"": (None, None)}


def test_the_accuracy_of_a_game_lies_between_those_of_its_phases() -> None:
    random = Random(3)
    for _ in range(300):
        phases = sorted(random.choices(PHASES, k=random.randrange(1, 80)), key=PHASES.index)
        found = accuracies(
            [random.choice((0, 5, 40, 50, 60, 97, 100)) for _ in range(len(phases) + 1)], phases
        )
        for side in (0, 1):
            parts = [each for phase in {*phases} if (each := found[phase][side]) is not None]
            whole = found[""][side]
            assert whole is None or min(parts) <= whole <= max(parts)


def test_no_recapture_or_move_of_a_named_opening_is_praised() -> None:
    moves = moves_of("e2e4", "d7d5", "e4d5", "d8d5", "a2a3", "d5d4")
    positions = [replace(searched(0.5, move.uci(), 0.1), prior=0.1) for move in moves]
    theory = judge(chess.Board(), moves, [*positions, searched(0.5)], [MoveTime()] * 6)
    assert [each.mark for each in theory] == [""] * 4 + ["only move"] * 2
    board = chess.Board("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQ - 0 1")
    other = judge(board, moves, [*positions, searched(0.5)], [MoveTime()] * 6)
    assert [each.san for each in other if not each.mark] == ["Qxd5"]


def test_openings_are_named_by_position() -> None:
    assert len(names()) == 3807
    najdorf = ["e2e4", "c7c5", "g1f3", "d7d6", "d2d4", "c5d4", "f3d4", "g8f6", "b1c3", "a7a6", "a2a4"]
    assert opening_of(map(chess.Move.from_uci, najdorf)) == ("B90", "Sicilian Defense: Najdorf Variation")
    transposed = ["d2d4", "d7d5", "c2c4"]
    other = ["c2c4", "d7d5", "d2d4"]
    assert opening_of(map(chess.Move.from_uci, transposed)) == opening_of(map(chess.Move.from_uci, other))
    assert opening_of([]) is None


@pytest.mark.parametrize(
    ("loser", "known"),
    [
        ((0.5, 0.5, 0.5, 0.39, 0.39, 0.0), True),
        ((0.5, 0.5, 0.5, 0.2, 0.2, 0.0), False),
        ((0.6, 0.6, 0.6, 0.26, 0.26, 0.0), True),  # A draw counts as much as a win.
        ((0.5, 0.5, 0.46, 0.42, 0.42, 0.3), True),  # It was still held.
    ],
)
def test_losing_move_is_unknown_when_more_was_lost_before(loser: tuple[float, ...], known: bool) -> None:
    assert slid(loser, 4) is not known


def test_refuted_move_has_the_second_choice_as_better() -> None:
    line = ("d2d4", "d7d5")
    before = Searched(score(0.6), "e2e4", ("e2e4",), second=score(0.5), second_line=line)
    positions = [before, searched(0.9, "e7e5")]
    (review,) = judge(chess.Board(), moves_of("e2e4"), positions, [MoveTime()])
    assert review.mark == "blunder" and review.best == "d4" and review.line == ("d4", "d5")

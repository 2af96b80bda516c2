# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of games by adjudication."""

from collections.abc import Sequence
from pathlib import Path

import chess
import pytest

from engine.apps.games.record import MoveRecord, Reason
from engine.apps.games.referee import Verdict
from engine.apps.match.adjudication import (
    Adjudication,
    Adjudicator,
    DrawRule,
    ResignRule,
    TablebaseError,
    TablebaseRule,
    open_tablebases,
)
from tests.paths import TABLES

SHUFFLE = ("g1f3", "g8f6", "f3g1", "f6g8")


def judged(rules: Adjudication, scores: Sequence[int | None]) -> list[Verdict | None]:
    """What an adjudicator says after each move of a game of knights' moves with these scores of the mover."""
    board, adjudicator, verdicts = chess.Board(), Adjudicator(rules), []
    for number, score in enumerate(scores):
        board.push_uci(SHUFFLE[number % 4])
        verdicts.append(adjudicator.judge(board, MoveRecord(SHUFFLE[number % 4], score_cp=score)))
    return verdicts


def test_one_sided_resignation_needs_moves_in_a_row() -> None:
    rules = Adjudication(resign=ResignRule(score=500, moves=2))
    assert judged(rules, [-600, 0, -600])[-1] == Verdict("0-1", Reason.RESIGNATION)
    assert judged(rules, [0, -500, 0, -500])[-1] == Verdict("1-0", Reason.RESIGNATION)
    assert judged(rules, [-600, 0, -499, 0, -600]) == [None] * 5
    assert judged(rules, [-600, 0, None, 0, -600]) == [None] * 5
    assert judged(rules, [900, 0, 900, 0, 900]) == [None] * 5


def test_two_sided_resignation_needs_the_opponent() -> None:
    rules = Adjudication(resign=ResignRule(score=500, moves=2, two_sided=True))
    assert judged(rules, [-600, 499, -600, 600]) == [None] * 4
    # Either side may be the last one to agree.
    assert judged(rules, [-600, 600, -600, 600]) == [None, None, None, Verdict("0-1", Reason.RESIGNATION)]
    assert judged(rules, [-600, 600, 0, 600, -600, 600, -600])[-1] == Verdict("0-1", Reason.RESIGNATION)


def test_a_mate_counts_as_any_score() -> None:
    adjudicator = Adjudicator(Adjudication(resign=ResignRule(score=100_000, moves=1)))
    board = chess.Board()
    board.push_uci("g1f3")
    verdict = adjudicator.judge(board, MoveRecord("g1f3", mate=-3))
    assert verdict == Verdict("0-1", Reason.RESIGNATION)


def test_a_draw_needs_both_sides_the_move_number_and_no_pawn_move() -> None:
    rules = Adjudication(draw=DrawRule(from_move=0, moves=2, score=10))
    assert judged(rules, [5, -5, 10, -10])[-1] == Verdict("1/2-1/2", Reason.ADJUDICATED_DRAW)
    assert judged(rules, [5, -5, 11, -10, 5]) == [None] * 5
    late = Adjudication(draw=DrawRule(from_move=4, moves=1, score=10))
    verdicts = judged(late, [0] * 8)
    assert verdicts[:6] == [None] * 6
    assert verdicts[6] == Verdict("1/2-1/2", Reason.ADJUDICATED_DRAW)  # White has made move 4.

    board, adjudicator = chess.Board(), Adjudicator(rules)
    for move in ("g1f3", "g8f6", "e2e4", "f6g8"):
        board.push_uci(move)
        assert adjudicator.judge(board, MoveRecord(move, score_cp=0)) is None


def test_the_move_limit() -> None:
    verdict = Verdict("1/2-1/2", Reason.MOVE_LIMIT)
    assert judged(Adjudication(max_moves=2), [None] * 4) == [None, None, None, verdict]


def test_the_move_limit_counts_from_where_the_game_began() -> None:
    board = chess.Board("4k3/8/8/8/8/8/4P3/4K3 w - - 0 70")
    board.push_uci("e2e4")
    adjudicator = Adjudicator(Adjudication(max_moves=60))
    assert adjudicator.judge(board, MoveRecord("e2e4")) is None


def test_without_rules_nothing_is_adjudicated() -> None:
    assert judged(Adjudication(), [-10_000, 10_000] * 6) == [None] * 12


def tables(**values: object) -> TablebaseRule:
    return TablebaseRule((str(TABLES),), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fen", "expected"),
    [
        ("8/8/8/8/8/2k5/8/KQ6 w - - 0 1", "1-0"),
        ("8/8/8/8/8/2k5/8/KQ6 b - - 0 1", "1-0"),
        ("8/8/8/8/8/2k4r/8/K7 b - - 0 1", "0-1"),
        ("8/8/8/8/8/2k4r/6P1/K7 b - - 0 1", "0-1"),
        ("8/8/8/8/8/2k5/8/KB5b w - - 0 1", "1/2-1/2"),
    ],
)
def test_tablebases_decide(fen: str, expected: str) -> None:
    with open_tablebases(tables()) as tablebases:
        verdict = Adjudicator(Adjudication(), tablebases).judge_start(chess.Board(fen))
    assert verdict is not None
    assert (verdict.result, verdict.reason) == (expected, Reason.TABLEBASE)


def test_tablebases_leave_wins_to_play_while_the_fifty_moves_run() -> None:
    with open_tablebases(tables()) as tablebases:
        assert tablebases is not None
        assert tablebases.judge(chess.Board("8/8/8/8/8/2k5/8/KQ6 w - - 1 1")) is None
        assert tablebases.judge(chess.Board("8/8/8/8/8/2k5/8/KQ6 w - - 90 1"), first=True) is None
        drawn = tablebases.judge(chess.Board("8/8/8/8/8/2k5/8/KB5b w - - 30 1"), first=True)
        assert drawn == Verdict("1/2-1/2", Reason.TABLEBASE)


def test_tablebase_rules_choose_what_counts() -> None:
    win, draw = chess.Board("8/8/8/8/8/2k5/8/KQ6 w - - 0 1"), chess.Board("8/8/8/8/8/2k5/8/KB5b w - - 0 1")
    for rule, wins, draws in (
        (tables(results="wins"), True, False),
        (tables(results="draws"), False, True),
        (tables(men=2), False, False),
        (tables(men=3), True, False),
    ):
        with open_tablebases(rule) as tablebases:
            assert tablebases is not None
            assert (tablebases.judge(win) is not None) == wins
            assert (tablebases.judge(draw) is not None) == draws


def test_castling_rights_and_many_men_are_not_for_the_tables() -> None:
    with open_tablebases(tables()) as tablebases:
        assert tablebases is not None
        assert tablebases.judge(chess.Board("4k3/8/8/8/8/8/8/4K2R w K - 0 1")) is None
        assert tablebases.judge(chess.Board()) is None


def test_folders_without_tables_are_named(tmp_path: Path) -> None:
    for folder, told in ((tmp_path, "holds no Syzygy tables"), (tmp_path / "nowhere", "nowhere")):
        rule = TablebaseRule((str(folder),))
        with pytest.raises(TablebaseError, match=told), open_tablebases(rule):
            pass

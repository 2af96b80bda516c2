# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves as UCI text: both spellings of castling, and a reason for every refusal."""

import re

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine._core import Game
from tests.engine.core.chess.games import STARTS
from tests.rounds import rounds

CASTLING = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
PROMOTION = "8/P6k/8/8/8/8/8/K7 w - - 0 1"


@pytest.mark.parametrize(
    ("fen", "move", "reason"),
    [
        (chess.STARTING_FEN, "", "expected four or five characters"),
        (chess.STARTING_FEN, "e2", "expected four or five characters"),
        (chess.STARTING_FEN, "e2e4e5", "expected four or five characters"),
        (chess.STARTING_FEN, "e2e9", "expected two squares"),
        (chess.STARTING_FEN, "E2E4", "expected two squares"),
        (chess.STARTING_FEN, "0000", "a null move cannot be played"),
        (chess.STARTING_FEN, "e3e4", "there is no piece on e3"),
        (chess.STARTING_FEN, "e7e5", "the piece on e7 is not White's"),
        (chess.STARTING_FEN, "e2e5", "illegal in this position"),
        (chess.STARTING_FEN, "e1g1", "illegal in this position"),
        (chess.STARTING_FEN, "e2e4q", "it is no promotion"),
        (PROMOTION, "a7a8", "a promotion needs its piece"),
        (PROMOTION, "a7a8k", "none of n, b, r, q"),
        (PROMOTION, "a7a8Q", "none of n, b, r, q"),
        (PROMOTION, "a7a8 ", "none of n, b, r, q"),
        ("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1", "e1e2x", "none of n, b, r, q"),
        ("4k3/8/8/8/8/5n2/P7/4K3 w - - 0 1", "a2a3", "White is in check"),
        (chess.STARTING_FEN, "e2\x00\x07", "'e2??'"),
        (chess.STARTING_FEN, "\udce4\udce4", "not valid Unicode"),
    ],
)
def test_refuses_with_a_reason(fen: str, move: str, reason: str) -> None:
    game = Game(fen)
    with pytest.raises(ValueError, match=re.escape(reason)):
        game.push_uci(move)
    assert game.moves() == []
    assert game.fen() == fen


@pytest.mark.parametrize("spelling", ["e1g1", "e1h1"])
def test_castling_is_understood_in_both_spellings(spelling: str) -> None:
    game = Game(CASTLING)
    game.push_uci(spelling)
    assert game.moves() == ["e1g1"]
    assert game.fen() == "r3k2r/8/8/8/8/8/8/R4RK1 b kq - 1 1"
    game = Game(CASTLING, chess960=True)
    game.push_uci(spelling)
    assert game.moves() == ["e1h1"]
    assert game.fen() == "r3k2r/8/8/8/8/8/8/R4RK1 b ha - 1 1"


def test_a_plain_king_step_is_not_taken_for_castling_in_chess960() -> None:
    game = Game("4k3/8/8/8/8/8/8/5K1R w H - 0 1", chess960=True)
    game.push_uci("f1g1")
    assert game.fen() == "4k3/8/8/8/8/8/8/6KR b - - 1 1"
    game.pop()
    game.push_uci("f1h1")
    assert game.fen() == "4k3/8/8/8/8/8/8/5RK1 b - - 1 1"


def test_a_king_that_stays_where_it_is_castles_by_taking_its_rook() -> None:
    game = Game("r5kr/pppppppp/8/8/8/8/PPPPPPPP/R5KR w HAha - 0 1", chess960=True)
    game.push_uci("g1h1")
    assert game.fen() == "r5kr/pppppppp/8/8/8/8/PPPPPPPP/R4RK1 b ha - 1 1"


def test_a_rook_pinned_on_its_own_rank_may_not_castle() -> None:
    game = Game("4k3/8/8/8/8/8/8/rR1K4 w B - 0 1", chess960=True)
    assert "d1b1" not in game.legal_moves()
    game = Game("4k3/r7/8/8/8/8/8/1R1K4 w B - 0 1", chess960=True)
    assert "d1b1" in game.legal_moves()


@settings(max_examples=rounds(500), derandomize=True)
@given(
    fen=st.sampled_from(STARTS),
    move=st.text(max_size=6) | st.from_regex(r"\A[a-h][1-8][a-h][1-8][nbrq]?\Z"),
    chess960=st.booleans(),
)
def test_any_text_is_a_legal_move_or_refused(fen: str, move: str, chess960: bool) -> None:
    game = Game(fen, chess960)
    legal = game.legal_moves()
    try:
        game.push_uci(move)
    except ValueError as refusal:
        assert str(refusal).startswith("move ")
        assert move not in legal
    else:
        assert game.moves()[0] in legal
        assert len(game.moves()) == 1

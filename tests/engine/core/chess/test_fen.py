# SPDX-License-Identifier: GPL-3.0-or-later
"""FEN is read exactly, and every illegal position is refused with its reason."""

import re

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine._core import Game, encode
from tests.engine.core.chess.games import STARTS
from tests.rounds import rounds

pytestmark = pytest.mark.integration

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR"

REFUSED = [
    ("", "0 fields instead of 6"),
    ("startpos", "1 fields instead of 6"),
    (f"{START} w KQkq - 0", "5 fields instead of 6"),
    (f"{START} w KQkq - 0 1 extra", "7 fields instead of 6"),
    (f"{START} w KQkq - 0 1" + " " * 120, "too many"),
    (f"{START} w KQkq - 0 1\n", "byte 0x0a is not a printable ASCII character"),
    ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNÖ w KQkq - 0 1", "byte 0xc3 is not a printable"),
    ("\udcff", "not valid Unicode"),
    ("8/8/8/8/8/8/8 w - - 0 1", "7 ranks instead of 8"),
    ("8/8/8/8/8/8/8/8/8 w - - 0 1", "more than 8 ranks"),
    ("9/8/8/8/8/8/8/8 w - - 0 1", "'9' on rank 8 is neither a piece nor a digit"),
    ("44p/8/8/8/8/8/8/8 w - - 0 1", "two digits in a row"),
    ("pppppppp1/8/8/8/8/8/8/8 w - - 0 1", "rank 8 has more than 8 squares"),
    ("7/8/8/8/8/8/8/8 w - - 0 1", "rank 8 has 7 squares instead of 8"),
    ("8/8/8/8/8/8/8/7 w - - 0 1", "rank 1 has 7 squares instead of 8"),
    ("8/8/8/8/8/8/8/8 w - - 0 1", "White has no king"),
    ("8/8/8/4K3/8/8/8/8 w - - 0 1", "Black has no king"),
    ("4k3/8/8/8/8/8/8/3KK3 w - - 0 1", "White has 2 kings"),
    ("8/8/8/3kK3/8/8/8/8 w - - 0 1", "kings stand next to each other"),
    ("4k3/8/8/8/8/8/P7/P3K3 w - - 0 1", "pawn stands on a1"),
    ("4k2p/8/8/8/8/8/8/4K3 w - - 0 1", "pawn stands on h8"),
    ("4k3/8/8/8/P7/8/PPPPPPPP/4K3 w - - 0 1", "White has 9 pawns"),
    ("4k3/8/8/8/8/NNNNN3/PPPPPPPP/RNBQKBNR w - - 0 1", "White has 21 men"),
    ("4k3/8/8/8/8/1Q6/PPPPPPPP/3QK3 w - - 0 1", "1 promoted pieces but only 0 missing pawns"),
    ("4k3/8/8/8/8/1B6/PPPPPPPP/4KB2 w - - 0 1", "1 promoted pieces but only 0 missing pawns"),
    (f"{START} white KQkq - 0 1", "side to move is 'white' instead of w or b"),
    (f"{START} - KQkq - 0 1", "side to move is '-'"),
    ("4k3/8/8/8/8/8/4r3/4K3 b - - 0 1", "White is in check but it is Black's move"),
    ("4k3/8/8/8/7b/5n2/8/4K2r w - - 0 1", "more than two men"),
    (f"{START} w KQkqx - 0 1", "'x' in the castling rights"),
    (f"{START} w KK - 0 1", "twice"),
    (f"{START} w KH - 0 1", "twice"),
    (f"{START} w KQkq0 - 0 1", "'0' in the castling rights"),
    ("4k3/8/8/8/8/8/8/4K3 w K - 0 1", "castling right 'K': there is no rook"),
    ("4k3/8/8/8/8/8/4K3/7R w K - 0 1", "the king is not on its first rank"),
    ("4k3/8/8/8/8/8/8/3K3R w K - 0 1", "the king is not on the e-file"),
    ("4k3/8/8/8/8/8/8/4K1R1 w K - 0 1", "there is no rook"),
    ("4k3/8/8/8/8/8/8/4K1R1 w G - 0 1", "rook is not in the corner"),
    ("4k3/8/8/8/8/8/8/4K1R1 w H - 0 1", "there is no rook on h1"),
    (f"{START} w KQkq e9 0 1", "en-passant square is 'e9'"),
    (f"{START} w KQkq e 0 1", "en-passant square is 'e'"),
    (f"{START} w KQkq e3 0 1", "must be on rank 6 with White to move"),
    (f"{START} b KQkq e6 0 1", "must be on rank 3 with Black to move"),
    (f"{START} w KQkq e6 0 1", "there is no pawn on e5"),
    ("4k3/8/4n3/4p3/8/8/8/4K3 w - e6 0 1", "e6 is occupied"),
    ("4k3/4p3/8/4p3/8/8/8/4K3 w - e6 0 1", "cannot have come from e7"),
    (f"{START} w KQkq - -1 1", "halfmove clock '-1' is not a number"),
    (f"{START} w KQkq - 151 1", "halfmove clock 151 is larger than 150"),
    (f"{START} w KQkq - 99999999999999999999 1", "halfmove clock is not a number from 0"),
    (f"{START} w KQkq - 0 x", "move number 'x' is not a number"),
    (f"{START} w KQkq - 0 10000", "move number 10000 is larger than 9999"),
]


REFUSED_IN_CHESS960 = [
    ("4k3/8/8/8/8/8/8/1R1RK3 w DB - 0 1", "two rooks on the same side of White's king"),
    ("4k3/8/8/8/8/8/8/R3K3 w E - 0 1", "there is no rook on e1"),
    ("1k6/8/8/8/8/8/8/R3K3 w q - 0 1", "castling right 'q': there is no rook"),
]


@pytest.mark.parametrize(("fen", "reason"), REFUSED + REFUSED_IN_CHESS960)
def test_refuses_with_a_reason(fen: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Game(fen, chess960=(fen, reason) in REFUSED_IN_CHESS960)


@pytest.mark.parametrize(
    ("fen", "written"),
    [
        (f"{START} w KQkq -", f"{START} w KQkq - 0 1"),
        (f"  {START}  w  KQkq  -  0  1 ", f"{START} w KQkq - 0 1"),
        (f"{START} w HAha - 0 1", f"{START} w KQkq - 0 1"),
        (f"{START} w qkQK - 0 0", f"{START} w KQkq - 0 1"),
        ("4k3/8/8/4p3/8/8/8/4K3 w - e6 0 9", "4k3/8/8/4p3/8/8/8/4K3 w - - 0 9"),
        ("4k3/8/8/3Pp3/8/8/8/4K3 w - e6 150 9", "4k3/8/8/3Pp3/8/8/8/4K3 w - e6 150 9"),
    ],
)
def test_reads_variants_and_writes_the_plain_form(fen: str, written: str) -> None:
    assert Game(fen).fen() == written


def test_x_fen_means_the_outermost_rook() -> None:
    game = Game("rr2k1rr/8/8/8/8/8/8/RR2K1RR w KQkq - 4 10", chess960=True)
    assert game.fen() == "rr2k1rr/8/8/8/8/8/8/RR2K1RR w HAha - 4 10"
    game = Game("rr2k1rr/8/8/8/8/8/8/RR2K1RR w GBgb - 4 10", chess960=True)
    assert game.fen() == "rr2k1rr/8/8/8/8/8/8/RR2K1RR w GBgb - 4 10"


def test_capturable_king_is_allowed_on_request_but_unplayable() -> None:
    fen = "8/8/8/3K4/8/8/8/k6q b - - 1 50"
    game = Game(fen, allow_opponent_check=True)
    assert not game.playable
    assert "h1d5" in game.legal_moves()
    with pytest.raises(ValueError, match="the side not to move is in check"):
        game.push_uci("a1a2")
    assert Game().playable


LEFT_OUT = "k7/8/8/8/8/8/8/K7 b"

CORRECTED = [
    (f"{START} w KQkq - 0", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq -", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq", f"{START} w KQkq - 0 1"),
    (f"{START} w", f"{START} w - - 0 1"),
    (f"{LEFT_OUT} 7 9", f"{LEFT_OUT} - - 7 9"),
    (f"{LEFT_OUT} - 7 9", f"{LEFT_OUT} - - 7 9"),
    ("4k3/8/8/3Pp3/8/8/8/4K3 w e6 0 9", "4k3/8/8/3Pp3/8/8/8/4K3 w - e6 0 9"),
    (f"{START} w KQkq d3 0 1", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq e6 0 1", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq e9 0 1", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq ? 0 1", f"{START} w KQkq - 0 1"),
    ("4k3/8/4n3/4p3/8/8/8/4K3 w - e6 0 1", "4k3/8/4n3/4p3/8/8/8/4K3 w - - 0 1"),
    ("4k3/8/8/8/8/8/4K3/R6R w KQkq - 0 1", "4k3/8/8/8/8/8/4K3/R6R w - - 0 1"),
    ("r3k3/8/8/8/8/8/8/R3K3 w KQkq - 0 1", "r3k3/8/8/8/8/8/8/R3K3 w Qq - 0 1"),
    (f"{START} w KKQkqx - 0 1", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq - 151 1", f"{START} w KQkq - 150 1"),
    (f"{START} w KQkq - -1 1", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq - 99999999999999999999 1", f"{START} w KQkq - 150 1"),
    (f"{START} w KQkq - x 0", f"{START} w KQkq - 0 1"),
    (f"{START} w KQkq - 3 10000", f"{START} w KQkq - 3 9999"),
]


@pytest.mark.parametrize(("fen", "meant"), CORRECTED)
def test_read_corrects_what_has_one_obvious_correction(fen: str, meant: str) -> None:
    game, corrections = Game.read(fen)
    assert game.fen() == meant
    assert corrections


@pytest.mark.parametrize(
    "fen",
    [
        START,
        f"{START} KQkq - 0 1",
        f"{START} x KQkq - 0 1",
        f"{START} w KQkq - 0 1 extra",
        "8/8/8/3kK3/8/8/8/8 w - - 0 1",
        "4k3/8/8/8/8/8/4r3/4K3 b - - 0 1",
        "4k3/8/8/8/8/1Q6/PPPPPPPP/3QK3 w - - 0 1",
        "4k3/8/8/8/8/8/8/4K1R1 w G - 0 1",
        "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP w KQkq - 0 1",
    ],
)
def test_read_refuses_what_has_no_obvious_correction(fen: str) -> None:
    with pytest.raises(ValueError, match="FEN: "):
        Game.read(fen)


def test_read_keeps_a_correct_fen_as_it_is() -> None:
    for fen in STARTS:
        for chess960 in (False, True):
            try:
                strict = Game(fen, chess960)
            except ValueError:
                continue
            game, corrections = Game.read(fen, chess960)
            assert (game.fen(), corrections) == (strict.fen(), [])


def check_accepted(game: Game, chess960: bool) -> None:
    fen = game.fen()
    assert Game(fen, chess960).fen() == fen
    board = chess.Board(fen, chess960=chess960)
    assert sorted(game.legal_moves()) == sorted(map(board.uci, board.legal_moves))
    for input_format in (1, 132, 5):
        encode([game], input_format, "always")


FEN_ALPHABET = st.sampled_from("pnbrqkPNBRQK12345678/ wKQkq-abcdefghABCDEFGH0369")


@settings(max_examples=rounds(500), derandomize=True)
@given(data=st.data(), fen=st.sampled_from(STARTS), chess960=st.booleans())
def test_damaged_fens_are_refused_or_played(data: st.DataObject, fen: str, chess960: bool) -> None:
    characters = list(fen)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(characters) - 1))
        width = data.draw(st.integers(0, 2))
        characters[place : place + width] = data.draw(FEN_ALPHABET)
    try:
        game = Game("".join(characters), chess960)
    except ValueError as refusal:
        assert str(refusal).startswith("FEN: ")
        return
    check_accepted(game, chess960)


@settings(max_examples=rounds(500), derandomize=True)
@given(data=st.data(), fen=st.sampled_from(STARTS), chess960=st.booleans())
def test_correction_never_changes_men_or_side_to_move(data: st.DataObject, fen: str, chess960: bool) -> None:
    fields = fen.split()
    for number in range(2, 6):
        fields[number] = data.draw(
            st.just(fields[number]) | st.just("") | st.text("KQkqABHabh-0123456789xe", min_size=1, max_size=6)
        )
    text = " ".join(fields)
    try:
        game, corrections = Game.read(text, chess960)
    except ValueError as refusal:
        assert str(refusal).startswith("FEN: ")
        return
    assert game.fen().split()[:2] == fields[:2]
    check_accepted(game, chess960)
    if not corrections:
        assert Game(text, chess960).fen() == game.fen()


@settings(max_examples=rounds(500), derandomize=True)
@given(st.text(max_size=200), st.booleans())
def test_any_text_is_refused_without_a_crash(text: str, chess960: bool) -> None:
    with pytest.raises(ValueError, match="FEN: "):
        Game(text, chess960)


@settings(max_examples=rounds(500), derandomize=True)
@given(
    men=st.dictionaries(st.integers(0, 63), st.sampled_from("pnbrqPNBRQ"), max_size=12),
    kings=st.lists(st.integers(0, 63), min_size=2, max_size=2, unique=True),
    turn=st.booleans(),
    en_passant=st.none() | st.integers(0, 63),
)
def test_random_positions_are_accepted_as_by_python_chess(
    men: dict[int, str], kings: list[int], turn: bool, en_passant: int | None
) -> None:
    board = chess.Board(None)
    for square, symbol in men.items():
        board.set_piece_at(square, chess.Piece.from_symbol(symbol))
    board.set_piece_at(kings[0], chess.Piece(chess.KING, chess.WHITE))
    board.set_piece_at(kings[1], chess.Piece(chess.KING, chess.BLACK))
    board.turn = turn
    board.ep_square = en_passant
    # A check that no last move explains is beyond a glance, and frequent in composed positions.
    fault = board.status() & ~(chess.STATUS_IMPOSSIBLE_CHECK)
    try:
        game = Game(board.fen(en_passant="fen"))
    except ValueError as refusal:
        assert fault, f"{board.fen(en_passant='fen')}: {refusal}"
    else:
        assert not fault, board.fen(en_passant="fen")
        check_accepted(game, chess960=False)

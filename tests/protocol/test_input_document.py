# SPDX-License-Identifier: GPL-3.0-or-later
"""Input planes and policy indices of docs/reference/positions.md against the engine that makes them."""

import re
from itertools import chain
from typing import Any

import chess
import numpy as np
import pytest

from engine._core import Game
from engine.evaluation.link.encoding import encode_games
from protocol.policy import policy_moves
from tests.engine.core.chess.games import random_games
from tests.engine.core.encoding.reference_encoder import FORMATS
from tests.paths import REPOSITORY

ONES = 2**64 - 1
COLUMNS = ("castling", "plane 108", "plane 109", "plane 110", "positions shown", "transform")


def formats_of_the_document() -> dict[int, dict[str, str]]:
    text = (REPOSITORY / "docs" / "reference" / "positions.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \| (.*) \|$", text, re.MULTILINE)
    return {int(number): dict(zip(COLUMNS, rest.split(" | "), strict=True)) for number, _, rest in rows}


def planes(fen: str, moves: list[str], input_format: int) -> tuple[list[int], float, int]:
    game = Game(None if fen == "startpos" else fen)
    for move in moves:
        game.push_uci(move)
    batch, transforms = encode_games([game], input_format=input_format)
    record = batch.positions[0]
    return [int(mask) for mask in record["planes"]], float(record["rule50"]), int(transforms[0])


def castling(input_format: int) -> str:
    # White may castle towards the h-file, Black towards the a-file, and White is to move.
    masks, _, _ = planes("r3k3/8/8/8/8/8/8/4K2R w Kq - 0 1", [], input_format)
    if masks[104:108] == [0, ONES, ONES, 0]:
        return "four flags"
    assert masks[104:108] == [1 << chess.A8, 1 << chess.H1, 0, 0]
    return "rooks"


def plane_108(input_format: int) -> str:
    seen = "4k3/8/8/8/3pP3/8/8/4K2R b K e3 0 1"
    mask = planes(seen, [], input_format)[0][108]
    if mask == ONES:
        return "side to move"
    assert mask == 1 << chess.E8
    return "en passant"


def plane_109(input_format: int) -> str:
    masks, value, _ = planes("4k3/8/8/8/8/8/4P3/4K3 w - - 30 40", [], input_format)
    assert masks[109] == ONES and masks[111] == ONES
    assert planes("startpos", [], input_format)[0][109] == ONES
    return {30.0: "plies", float(np.float32(0.3)): "hundredths"}[value]


def plane_110(input_format: int) -> str:
    assert planes("startpos", [], input_format)[0][110] == 0
    return {0: "0", ONES: "Black"}[planes("startpos", ["e2e4"], input_format)[0][110]]


def positions_shown(input_format: int) -> str:
    """Told apart by a game in which a pawn moves, and then the position after that comes again."""
    masks, _, _ = planes("startpos", ["e2e4"], input_format)
    shown_after_pawn = sum(masks[13 * h + 5] != 0 for h in range(8))
    moves = ["e2e3", "g8f6", "g1f3", "f6g8", "f3g1"]
    masks, _, _ = planes("startpos", moves, input_format)
    shown = sum(masks[13 * h + 5] != 0 for h in range(8))
    assert masks[12] == ONES
    return {(2, 6): "all", (1, 5): "reversible", (1, 1): "repeated"}[shown_after_pawn, shown]


def transform(input_format: int) -> str:
    found = planes("8/8/8/8/8/1K6/8/6k1 w - - 0 1", [], input_format)[2]
    return "canonical" if found else "none"


OBSERVED: dict[str, Any] = dict(
    zip(COLUMNS, (castling, plane_108, plane_109, plane_110, positions_shown, transform), strict=True)
)


def test_every_format_is_in_the_table() -> None:
    assert tuple(formats_of_the_document()) == FORMATS


@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("column", COLUMNS)
def test_the_table_of_formats(input_format: int, column: str) -> None:
    assert formats_of_the_document()[input_format][column] == OBSERVED[column](input_format)


@pytest.mark.parametrize("input_format", FORMATS)
def test_pieces_stand_where_the_document_says(input_format: int) -> None:
    masks, _, _ = planes("startpos", ["e2e4"], input_format)
    board = chess.Board()
    board.push_uci("e2e4")
    board.apply_mirror()
    for offset, color in ((0, chess.WHITE), (6, chess.BLACK)):
        assert masks[offset : offset + 6] == [
            int(board.pieces(piece, color)) for piece in range(chess.PAWN, chess.KING + 1)
        ]


def index_by_the_document(board: chess.Board, move: chess.Move, transform: int) -> int:
    """The steps of the document's section, one after the other."""
    squares = [move.from_square, move.to_square]
    if board.is_castling(move) and board.color_at(move.to_square) != board.turn:
        rank = chess.square_rank(move.from_square)
        squares[1] = chess.square(7 if move.to_square > move.from_square else 0, rank)
    if board.turn == chess.BLACK:
        squares = [square ^ 56 for square in squares]
    if transform & 4:
        squares = [square ^ 63 for square in squares]
    else:
        squares = [square ^ (7 * (transform & 1)) ^ (28 * (transform & 2)) for square in squares]
    promotion = {chess.QUEEN: "q", chess.ROOK: "r", chess.BISHOP: "b"}.get(move.promotion or 0, "")
    return policy_moves().index("".join(map(chess.square_name, squares)) + promotion)


POSITIONS = [
    "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1",
    "3nk3/2P1P3/8/8/8/8/2p1p3/3NK3 b - - 0 1",
    "8/8/8/8/8/1K6/R7/7k w - - 0 1",
    "8/8/2K5/8/8/8/R7/6k1 w - - 0 1",
    "8/8/8/8/7K/8/6R1/k7 b - - 0 1",
    "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3",
]


@pytest.mark.parametrize("chess960", [False, True])
@pytest.mark.parametrize("input_format", [1, 3])
def test_policy_indices_follow_the_document(input_format: int, chess960: bool) -> None:
    positions = [] if chess960 else [(Game(fen), chess.Board(fen)) for fen in POSITIONS]
    seen = set()
    for game, board in chain(positions, random_games(5, games=12, plies=20, chess960=chess960)):
        batch, transforms = encode_games([game], input_format=input_format)
        seen.add(int(transforms[0]))
        for text, index in zip(game.legal_moves(), batch.moves.tolist(), strict=True):
            move = board.parse_uci(text)
            assert index == index_by_the_document(board, move, int(transforms[0])), (game.fen(), text)
    if not chess960:
        assert (max(seen) >= 4) == (input_format == 3)

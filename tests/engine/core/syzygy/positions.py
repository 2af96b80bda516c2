# SPDX-License-Identifier: GPL-3.0-or-later
"""Random legal positions with given material, for the tests of tablebases."""

from random import Random

import chess


def pieces_of(name: str) -> list[chess.Piece]:
    """The men of a table's name such as KRPvKR, the first side White."""
    white, black = name.split("v")
    return [chess.Piece.from_symbol(symbol) for symbol in white + black.lower()]


def random_position(name: str, random: Random, *, en_passant: bool = False) -> chess.Board:
    """A legal position with this material, its sides swapped as often as not. en_passant: the last move was a
    double step that a pawn can answer by capturing; the material needs pawns on both sides."""
    pieces = pieces_of(name)
    while True:
        board = chess.Board(None)
        board.turn = random.random() < 0.5
        swap = random.random() < 0.5
        for square, piece in zip(random.sample(range(64), len(pieces)), pieces, strict=True):
            board.set_piece_at(square, chess.Piece(piece.piece_type, piece.color != swap))
        if en_passant and not _add_double_step(board, random):
            continue
        if board.is_valid() and (not en_passant or board.has_legal_en_passant()):
            return board


def _add_double_step(board: chess.Board, random: Random) -> bool:
    """Move an enemy pawn next to one of the mover's, as if it had just made a double step."""
    rank, forward = (4, 8) if board.turn else (3, -8)
    capturing, jumped = (list(board.pieces(chess.PAWN, color)) for color in (board.turn, not board.turn))
    file = random.randrange(8)
    neighbour = random.choice([near for near in (file - 1, file + 1) if 0 <= near < 8])
    for source, target in (
        (capturing[0], chess.square(neighbour, rank)),
        (jumped[0], chess.square(file, rank)),
    ):
        if source != target and board.piece_at(target) is not None:
            return False
        pawn = board.remove_piece_at(source)
        if pawn is None:
            return False
        board.set_piece_at(target, pawn)
    board.ep_square = chess.square(file, rank) + forward
    return True

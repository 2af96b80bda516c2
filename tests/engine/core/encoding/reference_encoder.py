# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's input planes, slowly: the facts of the format over python-chess boards, for comparison with the core.

Written from the description of the format, square by square, with nothing taken from the core.
"""

from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

FORMATS = (1, 2, 3, 4, 132, 5, 133)
FILLS = ("no", "fen_only", "always")
PIECE_ORDER = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN, chess.KING)

Grid = NDArray[np.bool_]
"""[8, 8], indexed by rank and file."""


@dataclass(frozen=True)
class Snapshot:
    """A position with lc0's en-passant flag and repetition count."""

    board: chess.Board
    en_passant: int | None
    repetitions: int
    identity: tuple[object, ...]
    """What lc0 compares: pieces, side to move, castling rights and its own en-passant flag."""


def attacked_by_pawn(board: chess.Board, square: int) -> bool:
    """Whether a pawn of the side to move attacks the square, pinned or not."""
    return bool(board.attackers_mask(board.turn, square) & board.pawns)


def identity(board: chess.Board, en_passant: int | None) -> tuple[object, ...]:
    return (board.board_fen(), board.turn, board.clean_castling_rights(), en_passant)


def snapshots(start: chess.Board, moves: list[chess.Move]) -> list[Snapshot]:
    board = start.copy(stack=False)
    positions = [Snapshot(board.copy(stack=False), board.ep_square, 0, identity(board, board.ep_square))]
    for move in moves:
        board.push(move)
        flag = board.ep_square if board.ep_square and attacked_by_pawn(board, board.ep_square) else None
        same_as = identity(board, flag)
        repetitions = 0
        for earlier in reversed(positions[max(0, len(positions) - board.halfmove_clock) :]):
            if earlier.identity == same_as:
                repetitions = earlier.repetitions + 1
                break
        positions.append(Snapshot(board.copy(stack=False), flag, repetitions, same_as))
    return positions


def grid(squares: chess.SquareSet, view: chess.Color) -> Grid:
    result = np.zeros((8, 8), bool)
    for square in squares:
        rank = chess.square_rank(square)
        result[rank if view == chess.WHITE else 7 - rank, chess.square_file(square)] = True
    return result


def transformed(squares: Grid, transform: int) -> Grid:
    if transform & 1:
        squares = squares[:, ::-1]
    if transform & 2:
        squares = squares[::-1, :]
    if transform & 4:
        result = np.zeros((8, 8), bool)
        for rank in range(8):
            for file in range(8):
                result[7 - file, 7 - rank] = squares[rank, file]
        squares = result
    return squares


def mask(squares: Grid) -> int:
    return int.from_bytes(np.packbits(squares, bitorder="little").tobytes(), "little")


def canonical_transform(board: chess.Board) -> int:
    if board.clean_castling_rights():
        return 0
    us = board.turn
    king = np.argwhere(grid(board.pieces(chess.KING, us), us))[0]
    transform = 0
    if king[1] <= 3:
        transform |= 1
    if board.pawns:
        return transform
    if king[0] >= 4:
        transform |= 2
    rank, file = np.argwhere(transformed(grid(board.pieces(chess.KING, us), us), transform))[0]
    if rank + file != 7:
        return transform | 4 if rank + file > 7 else transform
    both = [
        chess.SquareSet(squares)
        for squares in (board.kings, board.queens, board.rooks, board.knights, board.bishops)
    ]
    for squares in (chess.SquareSet(board.occupied), chess.SquareSet(board.occupied_co[us]), *both):
        plain = mask(transformed(grid(squares, us), transform))
        transposed = mask(transformed(grid(squares, us), transform | 4))
        if plain != transposed:
            return transform if plain < transposed else transform | 4
    return transform


def piece_grids(board: chess.Board, view: chess.Color) -> list[Grid]:
    return [grid(board.pieces(piece, color), view) for color in (view, not view) for piece in PIECE_ORDER]


def before_the_start(start: Snapshot, view: chess.Color) -> list[Grid]:
    board = start.board.copy(stack=False)
    if start.en_passant is not None:
        back = 8 if board.turn == chess.WHITE else -8
        pawn = board.remove_piece_at(start.en_passant - back)
        board.set_piece_at(start.en_passant + back, pawn)
    return piece_grids(board, view)


def history_grids(positions: list[Snapshot], input_format: int, fill: str) -> list[tuple[list[Grid], bool]]:
    """The shown positions, newest first: 12 piece grids and whether it is a repetition."""
    current = positions[-1]
    view = current.board.turn
    rights = current.board.clean_castling_rights()
    shown: list[tuple[list[Grid], bool]] = []
    for back, position in enumerate(reversed(positions)):
        if input_format >= 3:
            if position.board.clean_castling_rights() != rights or (back and position.en_passant is not None):
                return shown
            if input_format not in (5, 133) or back == 0 or position.repetitions:
                shown.append((piece_grids(position.board, view), position.repetitions > 0))
            if position.board.halfmove_clock == 0:
                return shown
        else:
            shown.append((piece_grids(position.board, view), position.repetitions > 0))
    start = positions[0]
    known_before = start.en_passant is not None
    if input_format in (5, 133) or (input_format >= 3 and known_before):
        return shown
    if fill == "no":
        missing = 1 if known_before else 0
    elif (
        fill == "fen_only" and start.board.fen(en_passant="fen").split()[:4] == chess.STARTING_FEN.split()[:4]
    ):
        missing = 0
    else:
        missing = 8
    return shown + [(before_the_start(start, view), False)] * missing


def encode(positions: list[Snapshot], input_format: int, fill: str) -> tuple[list[int], float, int]:
    """The 112 plane masks, the value of plane 109 and the transform."""
    board = positions[-1].board
    us = board.turn
    ones = np.ones((8, 8), bool)
    planes = [np.zeros((8, 8), bool)] * 112
    for step, (grids, repeated) in enumerate(history_grids(positions, input_format, fill)[:8]):
        planes[13 * step : 13 * step + 12] = grids
        if repeated:
            planes[13 * step + 12] = ones
    rights = chess.SquareSet(board.clean_castling_rights())
    for side, color in enumerate((us, not us)):
        king = board.king(color)
        assert king is not None
        for rook in rights & chess.SquareSet(board.occupied_co[color]):
            h_side = int(rook > king)
            if input_format == 1:
                planes[104 + 2 * side + h_side] = ones
            else:
                planes[104 + h_side] = planes[104 + h_side] | grid(chess.SquareSet([rook]), us)
    en_passant = positions[-1].en_passant
    if input_format < 3:
        if us == chess.BLACK:
            planes[108] = ones
    elif en_passant is not None:
        planes[108] = grid(chess.SquareSet([chess.square(chess.square_file(en_passant), 7)]), chess.WHITE)
    planes[109] = ones
    if input_format in (132, 133) and us == chess.BLACK:
        planes[110] = ones
    planes[111] = ones
    transform = canonical_transform(board) if input_format >= 3 else 0
    planes[:109] = [transformed(plane, transform) for plane in planes[:109]]
    rule50 = board.halfmove_clock / (100 if input_format > 3 else 1)
    return [mask(plane) for plane in planes], float(np.float32(rule50)), transform

# SPDX-License-Identifier: GPL-3.0-or-later
"""A plain mate search with python-chess, to compare the solver with."""

from collections.abc import Sequence

import chess


def shortest_mate(board: chess.Board, moves: int) -> int:
    """Return the moves of the shortest mate within `moves` moves; 0 if there is none."""
    return next((n for n in range(1, moves + 1) if _mates(board, n)), 0)


def is_mate_line(board: chess.Board, line: Sequence[str], moves: int) -> bool:
    """Return True if a line is a mate in `moves` moves by best play of both sides."""
    board = board.copy()
    if len(line) != 2 * moves - 1:
        return False
    for ply, move in enumerate(line):
        if ply % 2 == 0 and shortest_mate(board, moves) != moves - ply // 2:
            return False
        board.push_uci(move)
    return board.is_checkmate()


def _mates(board: chess.Board, moves: int) -> bool:
    """Return True if the side to move mates in at most `moves` moves."""
    for move in list(board.legal_moves):
        if moves == 1 and not board.gives_check(move):
            continue
        board.push(move)
        wins = board.is_checkmate() or (moves > 1 and not _is_drawn(board) and _is_lost(board, moves - 1))
        board.pop()
        if wins:
            return True
    return False


def _is_lost(board: chess.Board, moves: int) -> bool:
    """Return True if each reply allows a mate in at most `moves` moves."""
    replies = list(board.legal_moves)
    for move in replies:
        board.push(move)
        lost = not _is_drawn(board) and _mates(board, moves)
        board.pop()
        if not lost:
            return False
    return bool(replies)


def _is_drawn(board: chess.Board) -> bool:
    """Return True if the game ends here as a draw, unless it is mate."""
    return board.halfmove_clock >= 100 or board.is_repetition(3)

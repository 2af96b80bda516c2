# SPDX-License-Identifier: GPL-3.0-or-later
"""The referee of all games. A draw counts when it is on the board, and nobody has to claim it."""

from __future__ import annotations

from dataclasses import dataclass

import chess

from engine._core import Game
from engine.apps.games.record import Reason, Result

RESULTS: dict[str, Result] = {"white_won": "1-0", "black_won": "0-1", "draw": "1/2-1/2"}
"""Results by their names in the core."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a game."""

    result: Result
    reason: Reason
    detail: str = ""


def win_for(color: chess.Color) -> Result:
    """Return the result if this side wins."""
    return "1-0" if color == chess.WHITE else "0-1"


def game_of(board: chess.Board) -> Game:
    """Return the core's game of a board, with its moves since the last null move. Raises ValueError for an
    illegal position."""
    moves, start = list(board.move_stack), board.root()
    if chess.Move.null() in moves:
        start, moves = board.copy(), []
        while start.peek():
            moves.insert(0, start.pop())
    game = Game(start.fen(), board.chess960)
    for move in moves:
        game.push_uci(move.uci())
    return game


def end_by_rules(game: Game) -> Verdict | None:
    """Return the verdict for mate, stalemate, insufficient material, the 50-move rule or threefold
    repetition; None if the game continues. Mate precedes the 50-move rule."""
    name, reason = game.result()
    return Verdict(RESULTS[name], Reason(reason)) if name in RESULTS else None


def out_of_time(board: chess.Board) -> Verdict:
    """Return the verdict if the mover's time is over: a draw if the opponent cannot mate (FIDE Laws 6.9)."""
    if board.has_insufficient_material(not board.turn):
        return Verdict("1/2-1/2", Reason.TIME, "the opponent cannot mate")
    return Verdict(win_for(not board.turn), Reason.TIME)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a review into the game that it is of: NAGs, evaluations, the best line, and who lost it where.

Comments, clocks, variations and marks of the game stay.
"""

from __future__ import annotations

import chess
import chess.engine
import chess.pgn

from engine.review.games import GameReview, SourceGame
from engine.review.judging import NAGS, MoveReview, expected
from engine.search.scores import centipawn

ANNOTATOR = "Wavefront"


def annotated(source: SourceGame, review: GameReview) -> str:
    """Return the reviewed game as PGN."""
    game = source.read()
    white, black = review.accuracy
    game.headers["Annotator"] = ANNOTATOR
    if white is not None:
        game.headers["WhiteAccuracy"] = f"{white:.1f}"
    if black is not None:
        game.headers["BlackAccuracy"] = f"{black:.1f}"
    if review.opening is not None:
        game.headers["ECO"], game.headers["Opening"] = review.opening
    board = game.board()  # node.board() replays the game for each move.
    for node, move, value in zip(list(game.mainline()), review.moves, review.expected[1:], strict=True):
        if move.mark:
            node.nags.add(NAGS[move.mark])
        if move.mark in ("mistake", "blunder"):
            add_line(node.parent, board, move)
        board.push(node.move)
        if not (node.is_end() and board.is_game_over()):
            node.set_eval(chess.engine.PovScore(score_of(value), chess.WHITE))
        text = remark(move, lost_here=move.ply == review.decisive)
        if text:
            node.comment = f"{text} {node.comment}".strip()
    for name, text in game.headers.items():
        game.headers[name] = text.replace("\\", "\\\\").replace('"', '\\"')
    exporter = chess.pgn.StringExporter(columns=100)
    return f"{game.accept(exporter)}\n\n"


def score_of(value: float) -> chess.engine.Score:
    """Return an expected score in centipawns."""
    q = 2 * value - 1
    return chess.engine.Cp(round(centipawn(q, 0.0, q)))


def remark(move: MoveReview, *, lost_here: bool = False) -> str:
    """Return the comment on a move; empty if nothing is to be said."""
    parts = []
    if move.mark in ("inaccuracy", "mistake", "blunder"):
        change = f"{expected(move.before):.0%} to {expected(move.after):.0%}"
        parts.append(f"{move.mark.capitalize()}: {change}; {move.best} was best.")
    elif move.mark:
        parts.append("The only good move.")
    if move.missed_win:
        parts.append("Misses a win.")
    if lost_here:
        parts.append("The game is lost here.")
    return " ".join(parts)


def add_line(node: chess.pgn.GameNode, board: chess.Board, move: MoveReview) -> None:
    """Add the best line as a variation of a node with the move's position, unless the game has it."""
    board = board.copy(stack=False)
    for san in move.line:
        played = board.push_san(san)
        node = node.variation(played) if node.has_variation(played) else node.add_variation(played)

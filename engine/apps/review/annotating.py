# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a review into the game that it is of: NAGs, evaluations, win, draw and loss, the best line, reasons,
and who lost it where.

Comments, clocks, variations and marks of the game stay.
"""

from __future__ import annotations

import chess
import chess.engine
import chess.pgn

from engine.apps.games.pgn_reading import tag_value
from engine.apps.review.games import GameReview, SourceGame
from engine.apps.review.judging import FAULTS, NAGS, SERIOUS, MoveReview
from engine.apps.review.scale import WDL, expected
from engine.search.scores import thousandths

ANNOTATOR = "Wavefront"

MARKS = {1, 2, 3, 4, 5, 6}
"""Numeric annotation glyphs of good and bad moves."""

UNCLEAR = 13
"""Numeric annotation glyph of an unclear position."""


def annotated(source: SourceGame, review: GameReview) -> str:
    """Return the reviewed game as PGN."""
    game = source.read()
    white, black = review.accuracy
    author = game.headers.get("Annotator", "").removesuffix(ANNOTATOR).rstrip(", ")
    game.headers["Annotator"] = f"{author}, {ANNOTATOR}" if author else ANNOTATOR
    if white is not None:
        game.headers["WhiteAccuracy"] = f"{white:.1f}"
    if black is not None:
        game.headers["BlackAccuracy"] = f"{black:.1f}"
    for name, text in zip(("ECO", "Opening"), review.opening or (), strict=False):
        game.headers.setdefault(name, text)
    board = game.board()  # node.board() replays the game for each move.
    game.comment = f"{wdl_command(review.wdl[0])} {game.comment}".strip()
    for node, move in zip(list(game.mainline()), review.moves, strict=False):
        if move.mark and not node.nags & MARKS:  # The author's mark stays; the remark tells the review's.
            node.nags.add(NAGS[move.mark])
        elif move.unclear and not move.mark:
            node.nags.add(UNCLEAR)
        if move.mark in SERIOUS:
            add_line(node.parent, board, move)
        board.push(node.move)
        if not (node.is_end() and board.is_game_over()):
            score: chess.engine.Score = chess.engine.Cp(round(100 * review.pawns[move.ply + 1]))
            if move.mate_after is not None:
                score = chess.engine.Mate(move.mate_after if move.white else -move.mate_after)
            node.set_eval(chess.engine.PovScore(score, chess.WHITE))
        text = remark(move, lost_here=move.ply == review.decisive)
        node.comment = " ".join(filter(None, (text, node.comment, wdl_command(review.wdl[move.ply + 1]))))
    for name, text in game.headers.items():
        game.headers[name] = tag_value(text)
    exporter = chess.pgn.StringExporter(columns=100)
    return f"{game.accept(exporter)}\n\n"


def wdl_command(wdl: WDL) -> str:
    """Return White's win, draw and loss in thousandths as a command of a comment."""
    return "[%wdl {},{},{}]".format(*thousandths(wdl))


def remark(move: MoveReview, *, lost_here: bool = False) -> str:
    """Return the comment on a move; empty if nothing is to be said."""
    parts = []
    if move.mark in FAULTS:
        change = f"{expected(move.before):.0%} to {expected(move.after):.0%}"
        careless = "Careless: " if move.mark == "blunder" and move.people and move.people.careless else ""
        parts.append(f"{careless or f'{move.mark.capitalize()}: '}{change}; {move.best} was best.")
        parts += [reason.text for reason in move.reasons]
    elif move.mark:
        parts.append("By this search every other move is much worse.")
    elif (move.mate or 0) > 0 and move.uci != move.best_uci and not move.ends_in_mate:
        parts.append(f"{move.best} was mate in {move.mate}.")
    elif move.unclear:
        parts.append(f"Unclear: deeper searches disagree on this move and {move.best}.")
    if move.missed_win:
        parts.append("Misses a win.")
    if lost_here:
        parts.append("The game is lost here.")
    if move.mark in SERIOUS and move.people:
        parts.append(move.people.sentence())
    return " ".join(parts)


def add_line(node: chess.pgn.GameNode, board: chess.Board, move: MoveReview) -> None:
    """Add the best line as a variation of a node with the move's position, unless the game has it."""
    board = board.copy(stack=False)
    for san in move.line:
        played = board.push_san(san)
        node = node.variation(played) if node.has_variation(played) else node.add_variation(played)

"""A finished game as PGN, with what the players thought in comments.

A comment reads `{+0.31/12 1.204s, n=400, sd=20, tl=58.910s}`: score in pawns for the mover (or +M5, mate in
five), depth, thinking time, nodes, selective depth, time left; what is unknown is left out. Moves of the
opening say `{book}`; the last move says how the game ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import chess
import chess.pgn

from engine.games.record import GameRecord, MoveRecord
from engine.match.config import PlayerConfig


def pgn_text(
    record: GameRecord, players: Sequence[PlayerConfig], *, event: str, games_per_pair: int = 2
) -> str:
    """The game as PGN, with an empty line at its end."""
    board = chess.Board(record.start_fen or chess.STARTING_FEN, chess960=record.chess960)
    game = chess.pgn.Game()
    game.setup(board)
    _set_headers(game.headers, record, players, event, games_per_pair)
    node: chess.pgn.GameNode = game
    for uci in record.opening_moves:
        node = node.add_variation(board.push_uci(uci), comment="book")
    for move in record.moves:
        node = node.add_variation(board.push_uci(move.uci), comment=comment(move))
    end = record.explanation
    node.comment = f"{node.comment}, {end}" if node.comment else end
    return game.accept(chess.pgn.StringExporter(columns=100)) + "\n\n"


def comment(move: MoveRecord) -> str:
    """What is known of a move, without braces."""
    score = ""
    if move.mate is not None:
        score = f"{'-' if move.mate < 0 else '+'}M{abs(move.mate)}"
    elif move.score_cp is not None:
        score = f"{move.score_cp / 100:+.2f}"
    if score and move.depth is not None:
        score += f"/{move.depth}"
    parts = [f"{score} {move.seconds:.3f}s".strip()]
    if move.nodes is not None:
        parts.append(f"n={move.nodes}")
    if move.selective_depth is not None:
        parts.append(f"sd={move.selective_depth}")
    if move.clock_ms is not None:
        parts.append(f"tl={move.clock_ms / 1000:.3f}s")
    return ", ".join(parts)


def _set_headers(
    headers: chess.pgn.Headers,
    record: GameRecord,
    players: Sequence[PlayerConfig],
    event: str,
    games_per_pair: int,
) -> None:
    white, black = players[record.white], players[record.black]
    headers["Event"] = _tag(event)
    headers["Site"] = "?"
    if record.started:
        started = datetime.fromisoformat(record.started)
        headers["Date"] = started.strftime("%Y.%m.%d")
        headers["UTCDate"], headers["UTCTime"] = headers["Date"], started.strftime("%H:%M:%S")
    headers["Round"] = f"{record.pair + 1}.{record.number % games_per_pair + 1}"
    headers["White"], headers["Black"] = _tag(white.name), _tag(black.name)
    headers["Result"] = record.result
    headers["GameNumber"] = str(record.number + 1)
    headers["Opening"] = _tag(record.opening)
    if white.time == black.time:
        headers["TimeControl"] = str(white.time)
    else:
        headers["WhiteTimeControl"], headers["BlackTimeControl"] = str(white.time), str(black.time)
    headers["PlyCount"] = str(len(record.opening_moves) + len(record.moves))
    headers["Termination"] = record.reason.termination


def _tag(text: str) -> str:
    """The value of a tag: one line, without the characters that only some readers take escaped."""
    return " ".join(text.split()).replace("\\", "/").replace('"', "'") or "?"

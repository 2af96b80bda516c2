# SPDX-License-Identifier: GPL-3.0-or-later
"""Finished games as PGN, with the players' evaluations in comments, and their file.

A comment is `{+0.31/12 1.204s, n=400, sd=20, tl=58.910s}`: score in pawns for the mover (or +M5, mate in
five), depth, thinking time, nodes, selective depth, time left. Unknown values are omitted. Opening moves have
`{book}`. The last move's comment gives the end of the game.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import chess
import chess.pgn

from engine.apps.games.journal import JournalError
from engine.apps.games.record import GameRecord, MoveRecord
from protocol.common.files import append_whole, open_to_append
from protocol.common.printing import failing_as


def pgn_text(
    record: GameRecord,
    names: Sequence[str],
    time_controls: Sequence[str],
    *,
    event: str,
    games_per_pair: int = 2,
) -> str:
    """Return a game as PGN, with a final empty line. names, time_controls: by player number."""
    board = chess.Board(record.start_fen or chess.STARTING_FEN, chess960=record.chess960)
    game = chess.pgn.Game()
    game.setup(board)
    _set_headers(game.headers, record, names, time_controls)
    game.headers["Event"] = _tag(event)
    game.headers["Round"] = f"{record.pair + 1}.{record.number % games_per_pair + 1}"
    node: chess.pgn.GameNode = game
    for uci in record.opening_moves:
        node = node.add_variation(board.push_uci(uci), comment="book")
    for move in record.moves:
        node = node.add_variation(board.push_uci(move.uci), comment=comment(move))
    end = record.explanation
    node.comment = f"{node.comment}, {end}" if node.comment else end
    return game.accept(chess.pgn.StringExporter(columns=100)) + "\n\n"


def comment(move: MoveRecord) -> str:
    """Return a move's comment without braces."""
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
    headers: chess.pgn.Headers, record: GameRecord, names: Sequence[str], time_controls: Sequence[str]
) -> None:
    headers["Site"] = "?"
    if record.started:
        started = datetime.fromisoformat(record.started)
        headers["Date"] = started.strftime("%Y.%m.%d")
        headers["UTCDate"], headers["UTCTime"] = headers["Date"], started.strftime("%H:%M:%S")
    headers["White"], headers["Black"] = _tag(names[record.white]), _tag(names[record.black])
    headers["Result"] = record.result
    headers["GameNumber"] = str(record.number + 1)
    headers["Opening"] = _tag(record.opening)
    white_time, black_time = time_controls[record.white], time_controls[record.black]
    if white_time == black_time:
        headers["TimeControl"] = white_time
    else:
        headers["WhiteTimeControl"], headers["BlackTimeControl"] = white_time, black_time
    headers["PlyCount"] = str(len(record.opening_moves) + len(record.moves))
    headers["Termination"] = record.reason.termination


def _tag(text: str) -> str:
    """Return a tag's value: one line, without characters whose escapes some readers do not support."""
    return " ".join(text.split()).replace("\\", "/").replace('"', "'") or "?"


class PgnFile:
    """A journal's PGN file, open for more games. One thread at a time may use it."""

    def __init__(self, path: Path, end: int, log: Callable[[str], None]) -> None:
        """Open or create the file, and truncate it to `end` bytes: later games are not in the journal. log:
        called if the file is shorter. Raises JournalError."""
        self._path = path
        with failing_as(JournalError, f"cannot open {path}"):
            self._file = open_to_append(path)
            size = self._file.seek(0, os.SEEK_END)
            if size < end:
                log(f"{path} is shorter than the journal says: games of before are missing in it")
                end = size
            self._file.truncate(end)
            self._end = end

    def append(self, text: str) -> int:
        """Write a game to disk, sync it, and return the file's new size. Raises JournalError."""
        with failing_as(JournalError, f"cannot write {self._path}"):
            self._end = append_whole(self._file, text.encode("utf-8", "replace"), end=self._end)
        return self._end

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

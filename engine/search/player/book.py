# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves from a Polyglot opening book (options BookFile, BookDepth and BookSelection)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from engine.search.report import Line, Report

if TYPE_CHECKING:
    from engine._core import Game
    from engine.options import Options
    from engine.search.limits import Limits


def book_report(
    game: Game, limits: Limits, options: Options, random: Random, log: Callable[[str], None]
) -> Report | None:
    """Return the report of a book move, or None if the position is to be searched.

    Analysis is searched: `infinite`, `ponder`, `mate`, `searchmoves` and several lines. So is Chess960, whose
    castling the format cannot tell. An unreadable book is logged. Weights of 0 are never played.
    """
    analysis = limits.infinite or limits.ponder or limits.mate is not None or limits.search_moves
    if not options.book_file or analysis or options.multipv > 1 or options.chess960:
        return None
    # 30 ms to import: only players with a book need it.
    import chess
    import chess.polyglot

    start = game.start_fen()
    # The key of a position depends on the last move, which a FEN does not always show.
    board = chess.Board(start)
    for move in game.moves():
        board.push_uci(move)
    if board.fullmove_number > options.book_depth:
        return None
    try:
        if not Path(options.book_file).is_file():  # Opening a named pipe would wait for its writer.
            raise OSError(0, "it is not a file")
        if not Path(options.book_file).stat().st_size:
            raise OSError(0, "it is empty: make it again, or clear BookFile")
        with chess.polyglot.open_reader(options.book_file) as reader:
            entries = list(reader.find_all(board, minimum_weight=1))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its size is no multiple of 16 bytes"
        log(f"BookFile: {options.book_file} cannot be used: {reason}")
        return None
    if not entries:
        return None
    if options.book_selection == "best":
        chosen = max(entries, key=lambda entry: entry.weight)
    else:
        (chosen,) = random.choices(entries, [entry.weight for entry in entries])
    move = board.uci(chosen.move)
    share = chosen.weight / sum(entry.weight for entry in entries)
    return Report(move, None, (Line((move,), 0, 0.0, (0.0, 1.0, 0.0), 0.0, share),))

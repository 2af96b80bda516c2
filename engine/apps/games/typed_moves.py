# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions and moves as people write them on a command line: SAN or UCI moves, the games of a PGN file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import chess
import chess.pgn

from protocol.common.printing import printable

_MOVE_NUMBER = re.compile(r"\d+\.+")


def parsed_move(board: chess.Board, word: str) -> chess.Move | None:
    """Return the legal move that a word names, in SAN or UCI notation; None if there is none.

    Null moves, which python-chess reads, are not legal.
    """
    for parse in (board.parse_san, lambda text: board.parse_uci(text.lower())):
        with suppress(ValueError):
            return parse(word) or None
    return None


def push_words(board: chess.Board, words: Sequence[str]) -> None:
    """Play moves in SAN or UCI notation, also with move numbers. Raises ValueError that names the move."""
    for word in _MOVE_NUMBER.sub(" ", " ".join(words)).split():
        move = parsed_move(board, word)
        if move is None:
            raise ValueError(f"{word[:20]!a} is not a legal move in {board.fen()}: write it as Nf3 or g1f3")
        board.push(move)


def is_file_name(word: str) -> bool:
    """Return whether a word names a file of games, not a position."""
    return word == "-" or word.lower().endswith((".pgn", ".pgn.gz")) or Path(word).is_file()


def last_position(path: Path, number: int | None) -> tuple[chess.Board, str]:
    """Return the board at the end of a game of a PGN file, and which game that is, in words.

    number: of the game, from 1; None means the last one. Raises ValueError if the file or the game is
    unreadable, or there is no such game.
    """
    from engine.apps.games.pgn_reading import PgnGames, main_fault
    from engine.apps.games.text import read_text

    name = printable(str(path))
    try:
        games = PgnGames(read_text(path))
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from None
    if not games:
        raise ValueError(f"{name} has no games")
    if number is not None and not 1 <= number <= len(games):
        raise ValueError(f"--game: {number} is not from 1 to {len(games)}, the games of {name}")
    number = number or len(games)
    try:
        game = games[number - 1].read()
    except ValueError as error:
        raise ValueError(f"{name}, game {number}: {error}") from None
    players = printable(f"{game.headers.get('White', '?')} – {game.headers.get('Black', '?')}")
    end = game.end()
    where = "at its start"
    if isinstance(end, chess.pgn.ChildNode):
        before = end.parent.board()
        where = f"after {before.fullmove_number}{'.' if before.turn else '...'} {end.san()}"
    if fault := main_fault(game):
        where += f" ({printable(str(fault))})"
    return end.board(), f"{name}: game {number} of {len(games)}, {players}, {where}"

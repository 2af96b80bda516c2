# SPDX-License-Identifier: GPL-3.0-or-later
"""Notations of moves of users: UCI in either case, and standard algebraic notation (SAN)."""

from __future__ import annotations

import re
from functools import lru_cache

from engine._core import Game

MOST_CHARACTERS = 16

UCI = re.compile(r"[a-h][1-8][a-h][1-8][nbrqNBRQ]?")
_UPPER_UCI = re.compile(r"[A-H][1-8][A-H][1-8][NBRQ]?")
_SAN = re.compile(r"([O0]-[O0](-[O0])?|[KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](=?[QRBN])?)[+#!?]*")


def is_move(text: str) -> bool:
    """Return True if a text could be a move of some position."""
    return len(text) <= MOST_CHARACTERS and any(
        pattern.fullmatch(text) for pattern in (UCI, _UPPER_UCI, _SAN)
    )


def uci_of(text: str) -> str:
    """Return the text in lower case if it is a move in UCI notation, else an empty text."""
    return text.lower() if UCI.fullmatch(text) or _UPPER_UCI.fullmatch(text) else ""


def read_move(game: Game, text: str) -> str:
    """Return a move in UCI notation, unchecked if it is given in UCI notation.

    Raises ValueError for a text that is not a move, and for SAN that matches no legal move or several.
    """
    if uci := uci_of(text):
        return uci
    if not is_move(text):
        raise ValueError("it is no move, such as e2e4 or Nf3")
    try:
        return game.copy().push_san(text.rstrip("+#!?").replace("0", "O"))
    except ValueError as error:
        if str(error).startswith("several"):
            raise ValueError("several legal moves fit: add the file or rank that the piece leaves") from None
        raise ValueError("it is illegal in this position") from None


@lru_cache(maxsize=4096)
def san_of(fen: str, chess960: bool, moves: tuple[str, ...]) -> tuple[str, ...]:
    """Return legal moves from a position as SAN. Reports of a search repeat most lines."""
    game, found = Game(fen, chess960), []
    for move in moves:
        found.append(game.san(move))
        game.push_uci(move)
    return tuple(found)

# SPDX-License-Identifier: GPL-3.0-or-later
"""A chess board in a terminal: coloured squares, figurines without colours, or letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import chess
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

Look = Literal["colours", "figurines", "letters"]

SQUARES = {False: ("#7189a1", "#9fb2c5"), True: ("#a8923a", "#c4ae57")}
"""Colours of dark and light squares; of the last move's squares. White and black pieces stand out on both."""

PIECES = {chess.WHITE: "#ffffff", chess.BLACK: "#000000"}


def look_of(console: Console, *, letters: bool) -> Look:
    """Return what the console can show. letters: the user wants letters."""
    try:
        "".join(chess.UNICODE_PIECE_SYMBOLS.values()).encode(console.encoding)
    except UnicodeEncodeError:
        letters = True
    if letters:
        return "letters"
    # The 16 colours of other terminals are the user's choice: pieces could have the colour of their square.
    return "colours" if console.color_system in ("256", "truecolor") else "figurines"


def board_text(board: chess.Board, side: chess.Color, look: Look) -> Text:
    """Return the board as seen from a side, with coordinates. Colours mark the squares of the last move."""
    last = board.move_stack[-1] if board.move_stack else None
    moved = {last.from_square, last.to_square} if last is not None else set()
    ranks = range(7, -1, -1) if side else range(8)
    files = range(8) if side else range(7, -1, -1)
    text = Text()
    for rank in ranks:
        text.append(f" {rank + 1} ")
        for file in files:
            square = chess.square(file, rank)
            _append_square(text, board.piece_at(square), look, (file + rank) % 2, square in moved)
        text.append("\n")
    return text.append(
        "   " + "".join(f" {chess.FILE_NAMES[file]}{' ' * (look == 'colours')}" for file in files)
    )


def _append_square(text: Text, piece: chess.Piece | None, look: Look, light: int, moved: bool) -> None:
    if look == "colours":
        # The glyphs of Black are filled: in the piece's colour they are right on every background.
        glyph = " " if piece is None else chess.UNICODE_PIECE_SYMBOLS[piece.symbol().lower()]
        colour = PIECES[piece is None or piece.color]
        text.append(f" {glyph} ", f"{colour} on {SQUARES[moved][light]}")
    elif piece is None:
        text.append(" ·" if look == "figurines" else " .")
    else:
        text.append(f" {piece.unicode_symbol() if look == 'figurines' else piece.symbol()}")

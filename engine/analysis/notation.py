"""Moves as clients write them: UCI notation in either case, or standard algebraic notation (SAN)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine._core import Game

MOST_CHARACTERS = 16

UCI = re.compile(r"[a-h][1-8][a-h][1-8][nbrqNBRQ]?")
_UPPER_UCI = re.compile(r"[A-H][1-8][A-H][1-8][NBRQ]?")
_CASTLING = re.compile(r"[O0]-[O0](-[O0])?[+#!?]*")
_SAN = re.compile(r"([KQRBN])?([a-h])?([1-8])?x?([a-h][1-8])(?:=?([QRBN]))?[+#!?]*")


def is_move(text: str) -> bool:
    """Whether a text could name a move of some position."""
    return len(text) <= MOST_CHARACTERS and any(
        pattern.fullmatch(text) for pattern in (UCI, _UPPER_UCI, _CASTLING, _SAN)
    )


def uci_of(text: str) -> str:
    """The text in lower case if it is a move in UCI notation, else empty."""
    return text.lower() if UCI.fullmatch(text) or _UPPER_UCI.fullmatch(text) else ""


def read_move(game: Game, text: str) -> str:
    """A move in UCI notation, which may be illegal if it was given so. Raises ValueError for text that is no
    move, and for SAN that names no legal move or several."""
    if uci := uci_of(text):
        return uci
    if len(text) > MOST_CHARACTERS or not (_CASTLING.fullmatch(text) or _SAN.fullmatch(text)):
        raise ValueError("it is no move, such as e2e4 or Nf3")
    found = list(_named(game, text))
    if not found:
        raise ValueError("it is illegal in this position")
    if len(found) > 1:
        raise ValueError(f"it could be {' or '.join(found[:4])}")
    return found[0]


def _named(game: Game, text: str) -> Iterator[str]:
    """The legal moves that SAN names."""
    board = _board(game)
    legal = game.legal_moves()
    if castling := _CASTLING.fullmatch(text):
        for move in legal:
            if _castles(board, move) and (move[2] < move[0]) == bool(castling[1]):
                yield move
        return
    match = _SAN.fullmatch(text)
    assert match is not None
    piece, file, rank, target, promotion = match.groups()
    for move in legal:
        if (
            board[move[:2]].upper() == (piece or "P")
            and move[2:4] == target
            and move[4:] == (promotion or "").lower()
            and file in (None, move[0])
            and rank in (None, move[1])
            and not _castles(board, move)
        ):
            yield move


def _castles(board: dict[str, str], move: str) -> bool:
    """Whether a legal move is castling, written as the king's two steps or as king takes rook."""
    king, target = board[move[:2]], board.get(move[2:4], "")
    onto_rook = target.upper() == "R" and target.isupper() == king.isupper()
    return king.upper() == "K" and (onto_rook or abs(ord(move[0]) - ord(move[2])) > 1)


def _board(game: Game) -> dict[str, str]:
    """The pieces by square, as a FEN writes them."""
    board = {}
    for rank, row in zip("87654321", game.fen().split()[0].split("/"), strict=True):
        file = 0
        for character in row:
            if character.isdigit():
                file += int(character)
            else:
                board["abcdefgh"[file] + rank] = character
                file += 1
    return board

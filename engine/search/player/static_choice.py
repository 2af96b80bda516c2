# SPDX-License-Identifier: GPL-3.0-or-later
"""A move without a search, if no evaluation arrived in time: weak, but without the crudest blunders.

It is the move that an earlier search expected here, if any. Otherwise it is the move that wins most material,
counting exchanges up to the answer to the best reply. Among equal moves, one towards the centre is preferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan

from engine._core import Game
from engine.search.report import Line

_PAWNS = {"p": 1.0, "n": 3.0, "b": 3.0, "r": 5.0, "q": 9.0, "k": 0.0}
_MATE, _CASTLING = 1000.0, 0.15
_CENTRE = {"p": 0.03, "n": 0.03, "b": 0.01}
"""Value of a step of `_centrality` for each piece, in pawns."""


def static_lines(
    game: Game, moves: Sequence[str], count: int, expected: Line | None = None
) -> tuple[Line, ...]:
    """Return lines without evaluations, the best first. Their `visits` are 0.

    moves: legal moves to choose from, at least one. count: maximum number of lines, at least one. expected:
    the line of an earlier search from here.
    """
    known = expected if expected is not None and expected.moves and expected.moves[0] in moves else None
    if known is not None and count == 1:
        return (known,)
    board = _board(game)
    balance = sum(_PAWNS[piece.lower()] * (1 if _is_ours(piece, game) else -1) for piece in board.values())
    first = (known,) if known is not None else ()
    others = [(_gain(game, board, move), move) for move in moves if known is None or move != known.moves[0]]
    others.sort(key=lambda choice: choice[0], reverse=True)
    return (*first, *(_line(move, balance + gain) for gain, move in others[: count - len(first)]))


def _line(move: str, pawns: float) -> Line:
    """Return the line of a move after which the mover is `pawns` ahead."""
    q = atan(pawns * 100 / 90) / 1.5637541897  # centipawns as `centipawn` shows them
    q = max(-1.0, min(1.0, q))
    return Line((move,), 0, q, (max(q, 0.0), 1 - abs(q), max(-q, 0.0)), 0.0, 0.0)


def continued(line: Line, before: Sequence[str], now: Sequence[str]) -> Line | None:
    """Return the rest of a line, found after the moves `before` of a game, after the moves `now`. None if the
    game left the line or the line is used up."""
    played = now[len(before) :]
    if tuple(now[: len(before)]) != tuple(before) or tuple(played) != line.moves[: len(played)]:
        return None
    if len(played) >= len(line.moves):
        return None
    flipped = len(played) % 2 == 1
    return Line(
        line.moves[len(played) :],
        0,
        -line.q if flipped else line.q,
        line.wdl[::-1] if flipped else line.wdl,
        max(0.0, line.moves_left - len(played)),
        0.0,
    )


def _gain(game: Game, board: dict[str, str], move: str) -> float:
    """Return the pawns that a move wins, plus a small bonus for its target square."""
    source, target = move[:2], move[2:4]
    piece = board[source].lower()
    captured = board.get(target, "")
    takes_rook = captured != "" and _is_ours(captured, game)  # how Chess960 writes castling
    castles = piece == "k" and (takes_rook or abs(_file(source) - _file(target)) > 1)
    gain = 0.0 if castles else _captured(board, move)
    after = game.copy()
    after.push_uci(move)
    result, reason = after.result()
    if reason == "checkmate":
        return _MATE
    if result == "draw":
        return 0.0
    gain -= _loss(after)
    gain += _CASTLING if castles else 0.0
    return gain + _CENTRE.get(piece, 0.0) * (_centrality(target) - _centrality(source))


def _loss(game: Game) -> float:
    """Return the pawns that the side to move wins by its best capture, counting one recapture."""
    board = _board(game)
    most = 0.0
    for reply in game.legal_moves():
        target = reply[2:4]
        won = _captured(board, reply)
        if won <= most or (target in board and _is_ours(board[target], game)):
            continue
        after = game.copy()
        after.push_uci(reply)
        if any(answer[2:4] == target for answer in after.legal_moves()):
            won -= _PAWNS[(reply[4:] or board[reply[:2]]).lower()]
        most = max(most, won)
    return most


def _captured(board: dict[str, str], move: str) -> float:
    """Return the pawns that a move wins by capture, en passant included, and promotion."""
    source, target, promotion = move[:2], move[2:4], move[4:]
    en_passant = board[source].lower() == "p" and source[0] != target[0] and target not in board
    taken = 1.0 if en_passant else _PAWNS[board[target].lower()] if target in board else 0.0
    return taken + (_PAWNS[promotion] - 1.0 if promotion else 0.0)


def _board(game: Game) -> dict[str, str]:
    """Return the pieces by square, in FEN letters."""
    board = {}
    for row, pieces in zip("87654321", game.fen().split()[0].split("/"), strict=True):
        file = 0
        for piece in pieces:
            if piece.isdigit():
                file += int(piece)
            else:
                board["abcdefgh"[file] + row] = piece
                file += 1
    return board


def _is_ours(piece: str, game: Game) -> bool:
    return piece.isupper() == (game.turn == "white")


def _file(square: str) -> int:
    return "abcdefgh".index(square[0])


def _centrality(square: str) -> float:
    """Return how central a square is: 9 in the middle of the board, 0 at its edges."""
    return (3.5 - abs(_file(square) - 3.5)) * (3.5 - abs(int(square[1]) - 4.5))

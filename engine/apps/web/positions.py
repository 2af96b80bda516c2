# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of chess for pages: positions with their legal moves, and games as PGN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import chess
import chess.pgn

from engine._core import Game
from engine.apps.games.casual import CasualGame, start_of
from engine.apps.games.pgn_reading import PgnError, PgnGames, Walk, cleaned, tag_value
from engine.apps.games.referee import out_of_time
from engine.search.named_openings import opening_of

MOST_NODES = 20_000
"""Maximum moves of a PGN that is written."""

LONGEST_GAME = 400_000
"""Maximum characters of a game that is read: minutes of work otherwise."""

MOST_LISTED = 5000
"""Maximum games of a PGN that is read."""

OF_THE_START = ("FEN", "SetUp", "Variant")
"""Tags that a written PGN has from its first position."""


def position(game: CasualGame) -> dict[str, Any]:
    """Return a position for a page: FEN, legal moves by UCI as SAN, check, end."""
    board = game.board
    verdict = game.end or game.verdict()
    king = board.king(board.turn) if board.is_check() else None
    return {
        "fen": board.fen(),
        "turn": "white" if board.turn else "black",
        "ply": board.ply(),
        "legal": {} if game.end else {board.uci(move): board.san(move) for move in board.legal_moves},
        "check": None if king is None else chess.square_name(king),
        "end": None if game.end is None else {"result": game.end.result, "reason": str(game.end.reason)},
        "flag": out_of_time(board).result,
        "claim": str(verdict.reason) if verdict and not game.end else None,
        "corrections": list(game.corrections),
    }


def opening(game: CasualGame) -> str:
    """Return ECO code and name of a game's last named position; empty without one."""
    standard = game.board.root().fen() == chess.STARTING_FEN
    return " ".join(opening_of(game.board.move_stack) or ()) if standard else ""


def line(game: CasualGame) -> list[dict[str, str]]:
    """Return the moves of a game in both notations, each with the FEN after it."""
    board = game.board.root()
    board.chess960 = game.board.chess960
    found = []
    for move in game.board.move_stack:
        uci = board.uci(move)
        san = board.san_and_push(move)
        found.append({"uci": uci, "san": san, "fen": board.fen()})
    return found


def games_of(text: str) -> list[dict[str, Any]]:
    """Return the games of a PGN text as rows of a list."""
    rows = []
    for number, game in enumerate(PgnGames(text), 1):
        if number > MOST_LISTED:
            break
        rows.append({"number": number, "players": game.players})
    return rows


def tree_of(text: str, number: int) -> dict[str, Any]:
    """Return a game of a PGN text with its variations. nodes: each with the index of its parent, -1 for the
    start. Raises PgnError."""
    games = PgnGames(text)
    if not games:
        raise PgnError("pgn: the text has no game, such as 1. e4 e5")
    if not 1 <= number <= len(games):
        raise PgnError(f"game: {number} is not in 1 to {len(games)}, the games of this PGN")
    if len(games[number - 1].text) > LONGEST_GAME:
        raise PgnError(f"game {number} is longer than {LONGEST_GAME:,} characters")
    game = games[number - 1].read(null_moves=True)
    board = game.board()
    walk = Walk(Game(board.fen(), board.chess960))
    start = walk.ply
    nodes: list[dict[str, Any]] = []
    waiting = [(node, -1, start) for node in reversed(game.variations)]
    while waiting:
        node, parent, ply = waiting.pop()
        while walk.ply > ply:
            walk.pop()
        uci = node.move.uci()
        made = {"parent": parent, "uci": uci, "san": walk.san(uci)}
        walk.push(uci)
        more = {"before": node.starting_comment, "comment": node.comment, "nags": sorted(node.nags)}
        nodes.append(
            made | {"fen": walk.board.fen()} | {name: value for name, value in more.items() if value}
        )
        index = len(nodes) - 1
        waiting.extend((child, index, walk.ply) for child in reversed(node.variations))
    return {
        "headers": dict(game.headers),
        "fen": board.fen(),
        "chess960": board.chess960,
        "comment": game.comment,
        "nodes": nodes,
        "faults": [str(error) for error in game.errors],
    }


def pgn_of(
    fen: str,
    nodes: Sequence[Mapping[str, Any]],
    headers: Mapping[str, str],
    comment: str = "",
    *,
    chess960: bool,
) -> str:
    """Return a game as PGN. nodes: as in `tree_of`. comment: before the first move. Raises ValueError."""
    if len(nodes) > MOST_NODES:
        raise ValueError(f"nodes: {len(nodes):,} are more than {MOST_NODES:,}")
    board, _ = start_of(fen, chess960=chess960)
    game = chess.pgn.Game.from_board(board)
    game.comment = _comment(comment)
    made: list[tuple[chess.pgn.GameNode, chess.Board]] = [(game, board)]
    for index, node in enumerate(nodes):
        parent, uci = node.get("parent"), node.get("uci")
        if not isinstance(parent, int) or not -1 <= parent < index or not isinstance(uci, str):
            raise ValueError(f"node {index}: it has a uci, and as parent -1 or the index of an earlier node")
        above, before = made[parent + 1]
        try:
            move = before.parse_uci(uci)
        except ValueError as error:
            raise ValueError(f"node {index}: {error}") from None
        first = _comment(node.get("before", ""))
        child = above.add_variation(move, comment=_comment(node.get("comment", "")), starting_comment=first)
        child.nags = {nag for nag in node.get("nags", ()) if isinstance(nag, int) and 0 <= nag < 256}
        after = before.copy(stack=False)
        after.push(move)
        made.append((child, after))
    for name, value in headers.items():
        if name not in OF_THE_START:
            game.headers[name] = tag_value(str(value))
    return f"{game}\n"


def _comment(text: object) -> str:
    return cleaned(str(text)).replace("}", ")")

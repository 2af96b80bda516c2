# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions of played games that engines are asked about, game by game, so that a tree can be kept from one
to the next as in play."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import chess

from engine.games.pgn_reading import PgnError, PgnGames


class GamesError(Exception):
    """Games that cannot be used. The message names the file and says why."""


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """A game of a PGN file. number: from 1, in the file. moves: UCI notation. book: plies at its start that
    nobody thought about."""

    number: int
    fen: str
    moves: tuple[str, ...]
    book: int = 0


@dataclass(frozen=True, slots=True)
class ReplayedGame:
    """A game, and the plies, from 0, before which it is asked what would be played."""

    number: int
    fen: str
    moves: tuple[str, ...]
    plies: tuple[int, ...]

    def boards(self) -> Iterator[tuple[int, chess.Board]]:
        """Each of the plies with its position, one board for all, with the moves before it on its stack."""
        board = chess.Board(self.fen)
        for ply, move in enumerate(self.moves[: self.plies[-1] + 1]):
            if ply in self.plies:
                yield ply, board
            board.push_uci(move)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which positions of a file's games. side: white, black or random (one of both in each game); book: plies
    that are left out at least, besides those that the file calls book; last: the last ply; seed: of the sides
    and of the games' order."""

    side: str = "random"
    book: int = 0
    last: int = 100
    seed: int = 1

    def of(self, games: Sequence[PlayedGame]) -> list[ReplayedGame]:
        """The games in the order in which they are replayed. Positions with one legal move are left out, and
        games without any others."""
        generator = random.Random(self.seed)
        replayed = []
        for game in games:
            turn = self._turn(generator)
            board = chess.Board(game.fen)
            plies = []
            for ply, move in enumerate(game.moves[: self.last + 1]):
                if ply >= max(self.book, game.book) and board.turn == turn and board.legal_moves.count() > 1:
                    plies.append(ply)
                board.push_uci(move)
            if plies:
                replayed.append(
                    ReplayedGame(game.number, game.fen, game.moves[: plies[-1] + 1], tuple(plies))
                )
        generator.shuffle(replayed)
        return replayed

    def _turn(self, generator: random.Random) -> chess.Color:
        chosen = generator.choice(chess.COLORS)  # Drawn for any side, so that the order is the same.
        return {"white": chess.WHITE, "black": chess.BLACK}.get(self.side, chosen)


def read_games(path: Path) -> list[PlayedGame]:
    """The games of a PGN file that are ordinary chess. Their book is the moves at the start whose comment is
    `book`. Raises GamesError."""
    games = []
    try:
        text = path.read_text("utf-8-sig", errors="replace")
    except OSError as error:
        raise GamesError(f"cannot read {path}: {error.strerror}") from None
    for number, written in enumerate(PgnGames(text), 1):
        try:
            game = written.read()
        except PgnError as error:
            raise GamesError(f"{path}, game {number}: {error} (line {written.line})") from None
        start = game.board()
        if type(start) is not chess.Board or start.chess960:
            continue
        nodes = list(game.mainline())
        thought = [ply for ply, node in enumerate(nodes) if node.comment.strip() != "book"]
        moves = tuple(node.move.uci() for node in nodes)
        games.append(PlayedGame(number, start.fen(), moves, min(thought, default=len(moves))))
    if not any(game.moves for game in games):
        raise GamesError(f"{path}: there is no game of ordinary chess with moves in it")
    return games

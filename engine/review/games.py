# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the games of PGN files, and makes the review of a game from its searched positions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chess
import chess.pgn

from engine.games.pgn_reading import PgnGame, PgnGames, cleaned
from engine.games.text import read_text
from engine.review.accuracy import game_accuracy
from engine.review.judging import MoveReview, Searched, decisive, expected, judge
from engine.review.openings import opening_of

LONGEST_CLOCK_S = 1e7
"""Largest time on a clock in seconds. Larger ones are errors of programs."""


@dataclass(frozen=True, slots=True)
class SourceGame:
    """A game of a file. number: from 1, over all files. copy: number of equal games before it."""

    number: int
    file: str
    line: int
    text: str
    copy: int = 0

    @property
    def key(self) -> str:
        """Digest that identifies the game, wherever it is in a file."""
        return hashlib.sha256(f"{self.copy}\n{self.text.strip()}".encode()).hexdigest()[:16]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: game {self.number} ({PgnGame(self.line, self.text).players})"

    def read(self) -> chess.pgn.Game:
        """Return the game with comments and variations. Raises PgnError."""
        return PgnGame(self.line, self.text).read(variations=True)


@dataclass(frozen=True, slots=True)
class GameReview:
    """A reviewed game. wdl: of White, at the start and after each move. opening: ECO code and name, or None.
    accuracy: of White and Black, None for a side without a move. decisive: a ply, None if there is none.
    """

    number: int
    place: str
    headers: dict[str, str]
    moves: list[MoveReview]
    wdl: list[tuple[float, float, float]]
    opening: tuple[str, str] | None
    accuracy: tuple[float | None, float | None]
    decisive: int | None

    def data(self) -> dict[str, Any]:
        """Return JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "moves"}
        return fields | {"moves": [move.data() for move in self.moves]}

    @classmethod
    def of(cls, data: dict[str, Any]) -> GameReview:
        """Return the review that JSON data describe."""
        moves = [
            MoveReview(
                **{
                    **move,
                    "line": tuple(move["line"]),
                    "before": tuple(move["before"]),
                    "after": tuple(move["after"]),
                }
            )
            for move in data["moves"]
        ]
        made = {**data, "moves": moves, "wdl": [tuple(each) for each in data["wdl"]]}
        made["opening"] = tuple(data["opening"]) if data["opening"] else None
        made["accuracy"] = tuple(data["accuracy"])
        return cls(**made)

    @property
    def expected(self) -> list[float]:
        """White's expected score at the start and after each move."""
        return [expected(each) for each in self.wdl]


def games_of(paths: Sequence[Path], note: Callable[[str], None]) -> Iterator[SourceGame]:
    """Yield the games of PGN files.

    note: called with each file that has no games, text outside games or another encoding than UTF-8.
    Raises OSError and TextError.
    """
    number = 0
    copies: dict[bytes, int] = {}
    for path in paths:
        games = PgnGames(read_text(path, note))
        if games.ignored:
            line, words = games.ignored
            note(f"{path.name}:{line}: text before the first game ignored: {cleaned(words)[:60]!a}")
        if not games:
            note(f"no games in {path}")
        for game in games:
            number += 1
            digest = hashlib.sha256(game.text.strip().encode()).digest()
            copies[digest] = copies.get(digest, -1) + 1
            yield SourceGame(number, path.name, game.line, game.text, copies[digest])


def finished(source: SourceGame, game: chess.pgn.Game, searched: Sequence[Searched]) -> GameReview:
    """Return the review of a game. searched: each position, the last included."""
    board = game.board()
    moves = list(game.mainline_moves())
    reviews = judge(board, moves, searched, [clock_of(node) for node in game.mainline()])
    white = [board.turn == (ply % 2 == 0) for ply in range(len(searched))]
    wdl = [
        each.wdl if is_white else (each.wdl[2], each.wdl[1], each.wdl[0])
        for each, is_white in zip(searched, white, strict=True)
    ]
    worst = decisive(reviews, game.headers.get("Result", "*"))
    percentages = [100 * expected(each) for each in wdl]
    from_start = board.fen() == chess.STARTING_FEN
    return GameReview(
        number=source.number,
        place=source.place,
        headers=dict(game.headers),
        moves=reviews,
        wdl=wdl,
        opening=opening_of(moves) if from_start else None,
        accuracy=game_accuracy(percentages, white[0]),
        decisive=None if worst is None else worst.ply,
    )


def clock_of(node: chess.pgn.ChildNode) -> float | None:
    """Return the seconds on the clock after a move, or None if the comment has no sensible ones."""
    try:
        seconds = node.clock()
    except (OverflowError, ValueError):  # Hundreds of digits.
        return None
    return seconds if seconds is not None and seconds <= LONGEST_CLOCK_S else None

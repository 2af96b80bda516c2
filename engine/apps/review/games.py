# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the games of PGN files, and makes the review of a game from its searched positions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import chess
import chess.pgn

from engine.apps.games.pgn_reading import PgnGame, PgnGames, cleaned, main_fault
from engine.apps.games.text import read_text
from engine.apps.review.accuracy import accuracies, winning_percentage
from engine.apps.review.judging import (
    PHASES,
    MoveReview,
    MoveTime,
    Searched,
    backed_up,
    decisive,
    judge,
    loser_of,
    slid,
)
from engine.apps.review.scale import WDL, expected
from engine.search.named_openings import opening_of

LONGEST_CLOCK_S = 1e7
"""Largest time on a clock in seconds. Larger ones are errors of programs."""

MOST_LINES = 100
"""Largest number of the author's variations that a page shows."""

_COMMAND = re.compile(r"\[%[^\]]*\]")
"""Commands in comments, such as clocks and evaluations."""


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
        """Return the game with comments and variations. Raises PgnError, also if no move can be read."""
        game = PgnGame(self.line, self.text).read()
        if not game.variations and (fault := main_fault(game)):
            raise fault
        return game


Sides = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Note:
    """What the author of a game wrote at a move. ply: moves before the text or the lines. glyphs: numeric
    annotation glyphs. lines: SAN of the variations from this position on, a nested one with its beginning.
    """

    ply: int
    text: str = ""
    glyphs: list[int] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GameReview:
    """A reviewed game. wdl, pawns: of White, at the start and after each move. opening: ECO code and name, or
    None. accuracy, phases: of White and Black, in the game and by phase, None for a side without a move.
    decisive: a ply, None if there is none. notes: the author's. people: where the shares of people come from.
    """

    number: int
    place: str
    headers: dict[str, str]
    moves: list[MoveReview]
    wdl: list[WDL]
    pawns: list[float]
    opening: tuple[str, str] | None
    accuracy: Sides
    phases: dict[str, Sides]
    decisive: int | None
    notes: list[Note]
    people: str = ""

    def data(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> GameReview:
        """Return the review that JSON data describe."""
        made = {
            "moves": [MoveReview.of(move) for move in data["moves"]],
            "wdl": [tuple(each) for each in data["wdl"]],
            "opening": tuple(data["opening"]) if data["opening"] else None,
            "accuracy": tuple(data["accuracy"]),
            "phases": {phase: tuple(sides) for phase, sides in data["phases"].items()},
            "notes": [Note(**note) for note in data["notes"]],
        }
        return cls(**{**data, **made})

    @property
    def expected(self) -> list[float]:
        """White's expected score at the start and after each move."""
        return [expected(each) for each in self.wdl]


def games_of(paths: Sequence[Path], note: Callable[[str], None], encoding: str = "") -> Iterator[SourceGame]:
    """Yield the games of PGN files.

    note: called with each file that has no games, text outside games or a guessed encoding. encoding: see
    `read_text`. Raises OSError and TextError.
    """
    number = 0
    copies: dict[bytes, int] = {}
    for path in paths:
        games = PgnGames(read_text(path, note, encoding))
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


def finished(
    source: SourceGame, game: chess.pgn.Game, searched: Sequence[Searched], unclear: Collection[int] = ()
) -> GameReview:
    """Return the review of a game. searched: each position, the last included, or those of its first moves.
    unclear: plies without a verdict."""
    board = game.board()
    moves = list(game.mainline_moves())
    seen = moves[: len(searched) - 1]
    reviews = judge(board, seen, searched, clocks_of(game)[: len(seen)], unclear)
    white = [board.turn == (ply % 2 == 0) for ply in range(len(searched))]
    scores = [
        each if own else each.turned() for each, own in zip(backed_up(seen, searched), white, strict=True)
    ]
    percentages = [winning_percentage(each.pawns) for each in scores]
    found = accuracies(percentages, [review.phase for review in reviews], white[0])
    result, values = game.headers.get("Result", "*"), [each.expected for each in scores]
    result = result if seen == moves else "*"
    lost = decisive(values, result, board.turn)
    if lost is not None and (lost in unclear or slid(loser_of(values, result), lost)):
        lost = None
    return GameReview(
        number=source.number,
        place=source.place,
        headers=dict(game.headers),
        moves=reviews,
        wdl=[each.wdl for each in scores],
        pawns=[each.pawns for each in scores],
        opening=opening_of(moves) if board.fen() == chess.STARTING_FEN else None,
        accuracy=found[""],
        phases={phase: found.get(phase, (None, None)) for phase in PHASES},
        decisive=lost,
        notes=notes_of(game),
    )


def clocks_of(game: chess.pgn.Game) -> list[MoveTime]:
    """Return the clocks of the moves. Seconds for a move are those of its comment, or those missing on the
    clock since the player's move before, with the increment of a simple time control."""
    control = re.fullmatch(r"([0-9]{1,6})(?:\+([0-9]{1,4}))?", game.headers.get("TimeControl", ""))
    start, increment = (float(control[1]), float(control[2] or 0)) if control else (None, 0.0)
    clocks: list[MoveTime] = []
    for ply, node in enumerate(game.mainline()):
        left, spent = _seconds(node.clock), _seconds(node.emt)
        before = clocks[ply - 2].left if ply >= 2 else start
        if spent is None and left is not None and before is not None and before + increment >= left:
            spent = round(before + increment - left, 1)
        clocks.append(MoveTime(left, spent))
    return clocks


def _seconds(read: Callable[[], float | None]) -> float | None:
    """Return the seconds of a comment, or None if it has no sensible ones."""
    try:
        seconds = read()
    except (OverflowError, ValueError):  # Hundreds of digits.
        return None
    return seconds if seconds is not None and seconds <= LONGEST_CLOCK_S else None


def notes_of(game: chess.pgn.Game) -> list[Note]:
    """Return the author's comments, glyphs and variations, of these at most MOST_LINES."""
    notes, board, left = [], game.board(), MOST_LINES
    node: chess.pgn.GameNode | None = game
    ply = 0
    while node is not None:
        lines = list(islice(_lines(node.variations[1:], board), left))
        left -= len(lines)
        text, glyphs = _COMMAND.sub("", node.comment).strip(), sorted(node.nags)
        if text or glyphs or lines:
            notes.append(Note(ply, text, glyphs, lines))
        node, ply = node.next(), ply + 1
        if node is not None:
            board.push(node.move)
    return notes


def _lines(variations: Sequence[chess.pgn.ChildNode], board: chess.Board) -> Iterator[list[str]]:
    """Yield variations and those within them, each from its first move on. board: before them."""
    waiting = [(node, board.copy(stack=False), list[str]()) for node in reversed(variations)]
    while waiting:
        each, before, line = waiting.pop()
        nested = []
        while True:
            line.append(before.san(each.move))
            before.push(each.move)
            nested += [(other, before.copy(stack=False), [*line]) for other in each.variations[1:]]
            if not each.variations:
                break
            each = each.variations[0]
        yield line
        waiting += reversed(nested)

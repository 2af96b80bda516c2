# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the games of PGN files, searches their positions on an analysis scheduler, and judges the moves.

Many games are in flight, so that the evaluator gets full batches. Games end in any order.
"""

from __future__ import annotations

import hashlib
import json
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess
import chess.pgn

from engine.analysis.scheduler import Scheduler
from engine.games.pgn_reading import PgnError, PgnGame, PgnGames, cleaned
from engine.games.text import read_text
from engine.review.accuracy import game_accuracy
from engine.review.judging import INACCURACY, MoveReview, Searched, decisive, expected, judge, losses
from engine.review.openings import opening_of

POSITIONS_IN_FLIGHT = 4000
"""Positions that wait or are searched: enough for the largest batches."""

DEEPER = ((3, INACCURACY, 1.0), (10, 0.15, 0.3))
"""Second and third search: factor of the nodes, and least and greatest lost expected score of a move. Both of
its positions are searched again. One search may be mistaken. The third decides about marks as blunder."""

LINE_PLIES = 8
RESULTS = {"white_won": (1.0, 0.0, 0.0), "draw": (0.0, 1.0, 0.0), "black_won": (0.0, 0.0, 1.0)}
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


@dataclass(slots=True)
class _Pending:
    source: SourceGame
    game: chess.pgn.Game
    asked: list[int] = field(default_factory=list)
    """Turns that are searched."""
    answers: dict[int, Searched] = field(default_factory=dict)
    answered: int = 0
    searches: int = 1


@dataclass(slots=True)
class Effort:
    """What a review took. positions: searched, each as often as it was. seconds: from the first answer to the
    last."""

    positions: int = 0
    seconds: float = 0.0


class _Answers:
    """A client of the scheduler in this process."""

    congested = False

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def send(self, answer: bytes) -> None:
        self.queue.put(json.loads(answer))

    def done(self) -> None:
        self.queue.put(None)


def review_games(
    sources: Iterator[SourceGame],
    scheduler: Scheduler,
    nodes: int,
    *,
    skipped: Callable[[SourceGame, str], None],
    note: Callable[[SourceGame, str], None] = lambda source, text: None,
    effort: Effort | None = None,
) -> Iterator[GameReview]:
    """Yield the reviews of games, as they are ready.

    nodes: of each position; more by DEEPER around moves that seem to lose something. skipped: called with a
    game that cannot be reviewed, and the reason. note: called with a game and a fault that does not prevent
    its review. effort: receives counts.
    """
    effort = Effort() if effort is None else effort
    began: float | None = None
    client = _Answers()
    pending: dict[str, _Pending] = {}
    in_flight = 0
    more = True
    while more or pending:
        while more and in_flight < POSITIONS_IN_FLIGHT:
            source = next(sources, None)
            if source is None:
                more = False
                break
            try:
                game = source.read()
            except (PgnError, ValueError) as error:
                skipped(source, str(error))
                continue
            for fault in game.errors:
                note(source, str(fault))
            waiting = pending[str(source.number)] = _Pending(source, game)
            waiting.asked = list(range(sum(1 for _ in game.mainline()) + 1))
            in_flight += len(waiting.asked)
            scheduler.receive(client, json.dumps(query_of(waiting, nodes)))
        if not pending:
            break
        answer = client.queue.get()
        if answer is None or "warning" in answer:
            continue
        waiting = pending[answer["id"]]
        if "error" in answer:
            del pending[answer["id"]]
            in_flight -= len(waiting.asked) - waiting.answered
            skipped(waiting.source, answer["error"])
            continue
        began = began or time.perf_counter()
        effort.seconds = time.perf_counter() - began
        effort.positions += 1
        waiting.answers[answer["turn"]] = searched_of(answer)
        waiting.answered += 1
        in_flight -= 1
        if waiting.answered < len(waiting.asked):
            continue
        factor, suspects = next_search(waiting)
        if suspects:
            waiting.asked, waiting.answered = suspects, 0
            in_flight += len(suspects)
            scheduler.receive(client, json.dumps(query_of(waiting, factor * nodes)))
            continue
        del pending[answer["id"]]
        yield finished(waiting)


def query_of(waiting: _Pending, nodes: int) -> dict[str, Any]:
    """Return the query for the asked positions of a game."""
    board = waiting.game.board()
    return {
        "id": str(waiting.source.number),
        "fen": board.fen(),
        "chess960": board.chess960,
        "moves": [move.uci() for move in waiting.game.mainline_moves()],
        "analyze_turns": waiting.asked,
        "nodes": nodes,
        "multipv": 2,
        "pv_length": LINE_PLIES,
        "priority": -waiting.source.number,
    }


def next_search(waiting: _Pending) -> tuple[int, list[int]]:
    """Return the factor of the nodes of the next search of a game, and the positions before and after moves
    that seem to lose something. There are none if the game is searched."""
    moves = list(waiting.game.mainline_moves())
    lost = losses(moves, [waiting.answers[turn] for turn in range(len(moves) + 1)])
    for factor, least, most in DEEPER[waiting.searches - 1 :]:
        waiting.searches += 1
        suspects = {turn for ply, loss in enumerate(lost) if least <= loss <= most for turn in (ply, ply + 1)}
        if suspects:
            return factor, sorted(suspects)
    return 1, []


def finished(waiting: _Pending) -> GameReview:
    """Return the review of a game whose positions are searched."""
    game = waiting.game
    board = game.board()
    moves = list(game.mainline_moves())
    searched = [waiting.answers[turn] for turn in range(len(moves) + 1)]
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
        number=waiting.source.number,
        place=waiting.source.place,
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


def searched_of(answer: dict[str, Any]) -> Searched:
    """Return what an answer says of a position."""
    over = answer.get("game_over")
    if over and not answer["moves"]:
        win, draw, loss = RESULTS[over["result"]]
        white = answer["side_to_move"] == "white"
        return Searched((win, draw, loss) if white else (loss, draw, win))
    best, *others = answer["moves"]
    wdl = tuple(best["wdl"])
    return Searched(
        wdl=(wdl[0], wdl[1], wdl[2]),
        best=best["move"],
        line=tuple(best["pv"]),
        second=expected(others[0]["wdl"]) if others else None,
        prior=best["prior"],
        mate=best.get("mate"),
    )

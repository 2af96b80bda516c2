# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the moves of a game by the expected score that they lose.

The expected score of a position is win + draw / 2, from 0 to 1, on the scale of `scale`. A move loses the
difference between the position before it, where the best move counts, and the position after it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import chess

from engine.apps.review.people import People
from engine.apps.review.reasons import Known, MoveReason, reasons
from engine.apps.review.scale import WDL, Score
from engine.search.named_openings import theory_plies

INACCURACY, MISTAKE, BLUNDER = 0.08, 0.12, 0.2
"""Lost expected score from which a move gets a mark."""

ONLY_MOVE = 0.15
"""Expected score that every other move loses, if a move counts as the only one."""

EXPECTED_PRIOR = 0.4
"""The network's probability from which a move is too obvious for a mark, such as a recapture."""

WINNING, NOT_WINNING = 0.85, 0.65
"""Expected score before and after a missed win."""

LEVEL, HELD = 0.45, 0.4
"""Expected score of a level position, and of one that is still held."""

DRAWN = 0.5
LOST = 0.3
"""Expected score of the loser at the end, above which no move lost the game: it was lost on time, say."""

NAGS = {"only move": 1, "inaccuracy": 6, "mistake": 2, "blunder": 4}
SIGNS = {"only move": "!", "inaccuracy": "?!", "mistake": "?", "blunder": "??"}
PHASES = ("opening", "middlegame", "endgame")
FAULTS = ("inaccuracy", "mistake", "blunder")
SERIOUS = ("mistake", "blunder")


@dataclass(frozen=True, slots=True)
class Searched:
    """A position as a search sees it, for its side to move.

    best: the best move in UCI notation, None if the game is over. line: its continuation, with it. second,
    second_line: the same of the second move, None if there is none. prior: the network's probability of the
    best move. mate: moves to a proven mate, negative for being mated, None if there is none. tables: 1, 0
    or -1 if tablebases know the result.
    """

    score: Score
    best: str | None = None
    line: tuple[str, ...] = ()
    second: Score | None = None
    second_line: tuple[str, ...] = ()
    prior: float = 0.0
    mate: int | None = None
    tables: int | None = None

    @property
    def expected(self) -> float:
        return self.score.expected

    def better_than(self, move: str) -> tuple[str, ...]:
        """Return the line of the best other move, or of the best one without another."""
        return self.second_line if self.best == move and self.second_line else self.line

    @property
    def only(self) -> bool:
        return self.second is not None and self.expected - self.second.expected >= ONLY_MOVE

    @property
    def facts(self) -> Known:
        return Known(self.mate, self.tables)

    @property
    def certain(self) -> bool:
        """True if no search is needed to know the result."""
        return self.mate is not None or self.tables is not None or self.best is None


@dataclass(frozen=True, slots=True)
class MoveTime:
    """Seconds left after a move, and seconds that it took; None if the game does not say."""

    left: float | None = None
    spent: float | None = None


@dataclass(frozen=True, slots=True)
class MoveReview:
    """A judged move. Results are for the mover.

    ply: number of the moves before it. white: the mover. san, best: SAN. uci, best_uci: in UCI notation.
    line: SAN of the best line, reply: of the line after the move; both empty without a mark. before, after:
    win, draw and loss before and after the move. pawns: after the move. mark: a key of SIGNS, or "".
    unclear: deeper searches did not agree on the mark, so there is none. reasons: of the mark. missed_win:
    the move gives a winning position away. phase: opening, middlegame or endgame. clock: seconds left,
    spent: seconds for the move, None if the game does not say. fen: of the position before. mate,
    mate_after: moves to a proven mate before and after the move, negative for being mated.
    """

    ply: int
    white: bool
    number: int
    san: str
    uci: str
    best: str
    best_uci: str
    line: tuple[str, ...]
    reply: tuple[str, ...]
    before: WDL
    after: WDL
    pawns: float
    loss: float
    mark: str
    unclear: bool
    reasons: tuple[MoveReason, ...]
    missed_win: bool
    phase: str
    clock: float | None
    spent: float | None
    fen: str
    mate: int | None = None
    mate_after: int | None = None
    people: People | None = None

    @property
    def ends_in_mate(self) -> bool:
        """True if the move mates, or leads to a proven mate."""
        return self.san.endswith("#") or (self.mate_after or 0) > 0

    @property
    def label(self) -> str:
        """Number, move and sign, such as `23... Qxb2??`."""
        return f"{self.number}{'.' if self.white else '...'} {self.san}{SIGNS.get(self.mark, '')}"

    def data(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> MoveReview:
        """Return the move that JSON data describe."""
        tuples = {name: tuple(data[name]) for name in ("line", "reply", "before", "after")}
        people = People(**data["people"]) if data["people"] else None
        return cls(
            **{
                **data,
                **tuples,
                "reasons": tuple(MoveReason(**each) for each in data["reasons"]),
                "people": people,
            }
        )


def judge(
    board: chess.Board,
    moves: Sequence[chess.Move],
    searched: Sequence[Searched],
    clocks: Sequence[MoveTime],
    unclear: Collection[int] = (),
) -> list[MoveReview]:
    """Judge the moves of a game.

    board: its start, which is not changed. searched: one for each position, the last included. clocks: one
    for each move. unclear: plies whose mark deeper searches disagree on.
    """
    board = board.copy(stack=False)
    scores = backed_up(moves, searched)
    lost = losses(scores)
    reviews = []
    theory = theory_plies(moves) if board.fen() == chess.STARTING_FEN else 0
    taken: int | None = None
    for ply, (move, clock, loss) in enumerate(zip(moves, clocks, lost, strict=True)):
        before, after = searched[ply], searched[ply + 1]
        doubted = ply in unclear
        retakes = board.is_capture(move) and move.to_square == taken
        taken = move.to_square if board.is_capture(move) else None
        praised = before.best == move.uci() and not retakes and ply >= theory
        mark = "" if doubted else mark_of(before, loss, is_best=praised)
        fault = mark in FAULTS
        told = scores[ply + 1].turned()
        line = before.better_than(move.uci()) if loss >= INACCURACY else before.line
        fall = scores[ply].pawns - told.pawns
        reviews.append(
            MoveReview(
                ply=ply,
                white=board.turn,
                number=board.fullmove_number,
                san=board.san(move),
                uci=board.uci(move),
                best=board.san(board.parse_uci(line[0])) if line else "",
                best_uci=line[0] if line else "",
                line=san_line(board, line) if fault or doubted else (),
                reply=san_line(board, (move.uci(), *after.line))[1:] if fault or doubted else (),
                before=scores[ply].wdl,
                after=told.wdl,
                pawns=told.pawns,
                loss=loss,
                mark=mark,
                unclear=doubted,
                reasons=tuple(reasons(board, move, line, after.line, before.facts, after.facts, fall))
                if fault
                else (),
                missed_win=not doubted and missed_win(scores, ply),
                phase=phase_of(board),
                clock=clock.left,
                spent=clock.spent,
                fen=board.fen(),
                mate=before.mate,
                mate_after=None if after.mate is None else -after.mate,
            )
        )
        board.push(move)
    return reviews


def backed_up(moves: Sequence[chess.Move], searched: Sequence[Searched]) -> list[Score]:
    """Return the score of each position for its side to move, from the end of the game backwards.

    A position is worth at least what the move that was played leads to. If the search prefers that move, its
    own value for it is less deep than that, and only the second move is an alternative.
    """
    scores = [searched[-1].score]
    for move, position in zip(reversed(moves), reversed(searched[:-1]), strict=True):
        played = scores[-1].turned()
        other = position.second if position.best == move.uci() else position.score
        if position.certain:
            scores.append(position.score)
        else:
            scores.append(played if other is None or other.expected <= played.expected else other)
    return scores[::-1]


def losses(scores: Sequence[Score]) -> list[float]:
    """Return the expected score that each move loses. scores: of the sides to move."""
    return [round(max(0.0, one.expected + other.expected - 1), 4) for one, other in pairwise(scores)]


def mark_of(before: Searched, loss: float, *, is_best: bool) -> str:
    """Return a key of SIGNS, or "" for a move without a mark."""
    for mark, least in (("blunder", BLUNDER), ("mistake", MISTAKE), ("inaccuracy", INACCURACY)):
        if loss >= least:
            return mark
    return "only move" if is_best and before.only and before.prior < EXPECTED_PRIOR else ""


def missed_win(scores: Sequence[Score], ply: int) -> bool:
    return scores[ply].expected >= WINNING and 1 - scores[ply + 1].expected < NOT_WINNING


def san_line(board: chess.Board, line: Sequence[str]) -> tuple[str, ...]:
    """Return a line of UCI moves as SAN."""
    board = board.copy(stack=False)
    moves = []
    for uci in line:
        move = board.parse_uci(uci)
        moves.append(board.san(move))
        board.push(move)
    return tuple(moves)


def phase_of(board: chess.Board) -> str:
    """Return opening, middlegame or endgame, by move number and men."""
    men = chess.popcount(board.occupied & ~board.pawns & ~board.kings)
    if men <= 6:
        return "endgame"
    return "opening" if board.fullmove_number <= 12 and men >= 12 else "middlegame"


def lost_with(loser: Sequence[float], first: bool) -> int | None:
    """Return the ply of the move that lost the game, or None if no move did.

    loser: expected score of the side that lost, at the start and after each move. first: it made the first
    move. The move is the one whose loss is largest of what never comes back: seen from the end, a position is
    worth the highest expected score that the loser still has from there on. A draw counts as much as a win,
    because the move that gives a win away does not lose the game yet.
    """
    highest, largest, found = 0.0, 0.0, None
    if not loser or loser[-1] >= LOST:
        return None
    for ply in range(len(loser) - 2, -1, -1):
        highest = max(highest, min(DRAWN, loser[ply + 1]))
        loss = min(DRAWN, loser[ply]) - highest
        if (ply % 2 == 0) is first and loss > largest:
            largest, found = loss, ply
    return found


def slid(loser: Sequence[float], ply: int) -> bool:
    """Return True if the loser was below HELD before a move, and had lost more since it was level than by the
    move. Then several moves lost the game."""
    level = next((each for each in range(ply, -1, -1) if loser[each] >= LEVEL), 0)
    before = min(DRAWN, loser[level]) - loser[ply]
    return loser[ply] < HELD and before > loser[ply] - loser[ply + 1]


def loser_of(expected_scores: Sequence[float], result: str) -> list[float]:
    """Return the expected scores of the side that lost, from White's; empty for a game without a loser."""
    if result not in ("1-0", "0-1"):
        return []
    return [each if result == "0-1" else 1 - each for each in expected_scores]


def decisive(expected_scores: Sequence[float], result: str, white_begins: bool) -> int | None:
    """Return the ply of the move that lost a decided game. expected_scores: White's, as in `lost_with`."""
    return lost_with(loser_of(expected_scores, result), first=white_begins is (result == "0-1"))

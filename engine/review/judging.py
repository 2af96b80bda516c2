# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the moves of a game by the expected score that they lose.

The expected score of a position is win + draw / 2, from 0 to 1, by a search. A move loses the difference
between the position before it, where the best move counts, and the position after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import chess

WDL = tuple[float, float, float]

INACCURACY, MISTAKE, BLUNDER = 0.05, 0.09, 0.2
"""Lost expected score from which a move gets a mark, chosen against Stockfish (benchmarks/RESULTS.md)."""

ONLY_MOVE = 0.15
"""Expected score that every other move loses, if a move counts as the only one."""

EXPECTED_PRIOR = 0.4
"""The network's probability from which a move is too obvious for a mark, such as a recapture."""

WINNING, NOT_WINNING = 0.85, 0.65
"""Expected score before and after a missed win."""

LOST, LEVEL = 0.25, 0.45
"""Expected score below which a side does not recover from its decisive mistake, and one of a level game."""

NAGS = {
    "only move": 1,
    "inaccuracy": 6,
    "mistake": 2,
    "blunder": 4,
}
SIGNS = {"only move": "!", "inaccuracy": "?!", "mistake": "?", "blunder": "??"}
FAULTS = ("inaccuracy", "mistake", "blunder")


@dataclass(frozen=True, slots=True)
class Searched:
    """A position as a search sees it, for its side to move.

    best: the best move in UCI notation, None if the game is over. line: its continuation. second: expected
    score of the second move, None if there is none. prior: the network's probability of the best move. mate:
    moves to a proven mate, None if there is none.
    """

    wdl: WDL
    best: str | None = None
    line: tuple[str, ...] = ()
    second: float | None = None
    prior: float = 0.0
    mate: int | None = None

    @property
    def expected(self) -> float:
        return expected(self.wdl)


@dataclass(frozen=True, slots=True)
class MoveReview:
    """A judged move. Results are for the mover.

    ply: number of the moves before it. white: the mover. san, best: SAN. line: SAN of the best line, empty if
    the move loses less than INACCURACY. before, after: win, draw and loss before and after the move. mark: a
    key of SIGNS, or "". missed_win: the move gives a winning position away. phase: opening, middlegame or
    endgame. clock: seconds left, None if the game does not say. fen: of the position before.
    """

    ply: int
    white: bool
    number: int
    san: str
    uci: str
    best: str
    line: tuple[str, ...]
    before: WDL
    after: WDL
    loss: float
    mark: str
    missed_win: bool
    phase: str
    clock: float | None
    fen: str
    mate: int | None = None

    @property
    def label(self) -> str:
        """Number, move and sign, such as `23... Qxb2??`."""
        return f"{self.number}{'.' if self.white else '...'} {self.san}{SIGNS.get(self.mark, '')}"

    def data(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)


def expected(wdl: WDL) -> float:
    """Return the expected score of win, draw and loss."""
    return wdl[0] + wdl[1] / 2


def judge(
    board: chess.Board,
    moves: Sequence[chess.Move],
    searched: Sequence[Searched],
    clocks: Sequence[float | None],
) -> list[MoveReview]:
    """Judge the moves of a game.

    board: its start, which is not changed. searched: one for each position, the last included. clocks: one
    for each move.
    """
    board = board.copy(stack=False)
    reviews = []
    for ply, (move, clock, loss) in enumerate(zip(moves, clocks, losses(moves, searched), strict=True)):
        before, after = searched[ply], searched[ply + 1]
        wdl = (after.wdl[2], after.wdl[1], after.wdl[0])
        mark = mark_of(before, loss, after=expected(wdl), is_best=before.best == move.uci())
        reviews.append(
            MoveReview(
                ply=ply,
                white=board.turn,
                number=board.fullmove_number,
                san=board.san(move),
                uci=board.uci(move),
                best=board.san(board.parse_uci(before.best)) if before.best else "",
                line=san_line(board, before.line) if loss >= INACCURACY else (),
                before=before.wdl,
                after=wdl,
                loss=loss,
                mark=mark,
                missed_win=before.expected >= WINNING and expected(wdl) < NOT_WINNING,
                phase=phase_of(board),
                clock=clock,
                fen=board.fen(),
                mate=before.mate,
            )
        )
        board.push(move)
    return reviews


def losses(moves: Sequence[chess.Move], searched: Sequence[Searched]) -> list[float]:
    """Return the expected score that each move loses. The best move loses nothing."""
    lost = []
    for move, before, after in zip(moves, searched[:-1], searched[1:], strict=True):
        fall = 0.0 if before.best == move.uci() else before.expected + after.expected - 1
        lost.append(round(max(0.0, fall), 4))
    return lost


def mark_of(before: Searched, loss: float, *, after: float, is_best: bool) -> str:
    """Return a key of SIGNS, or "" for a move without a mark.

    after: the mover's expected score after the move. A move that keeps a won position is an inaccuracy at
    worst, even if it misses a mate.
    """
    if loss >= MISTAKE and after < WINNING:
        return "blunder" if loss >= BLUNDER else "mistake"
    if loss >= INACCURACY:
        return "inaccuracy"
    if is_best and before.second is not None and before.prior < EXPECTED_PRIOR:
        return "only move" if before.expected - before.second >= ONLY_MOVE else ""
    return ""


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


def decisive(reviews: Sequence[MoveReview], result: str) -> MoveReview | None:
    """Return the move after which the loser never recovers; None in a draw, or if every move was good.

    If the loser drifts below LOST by small losses, it is the largest loss since the last level position.
    """
    if result not in ("1-0", "0-1"):
        return None
    loser_is_white = result == "0-1"
    found, largest, after = None, None, 1.0
    for review in reviews:
        own = review.white == loser_is_white
        after = expected(review.after) if own else 1 - expected(review.after)
        if after >= LOST:
            found = None
        elif found is None and own and review.loss >= INACCURACY:
            found = review
        if own and review.loss >= INACCURACY and (largest is None or review.loss > largest.loss):
            largest = review
        if after >= LEVEL:
            largest = None
    return found or (largest if after < LOST else None)


def critical(
    reviews: Sequence[MoveReview], most: int = 4, *, decisive: int | None = None
) -> list[MoveReview]:
    """Return the moves that lose most, in their order, and among them the decisive one, a ply."""
    worst = sorted(
        (each for each in reviews if each.mark in ("mistake", "blunder")), key=lambda each: -each.loss
    )
    chosen = [each for each in reviews if each.ply == decisive]
    chosen += [each for each in worst if each.ply != decisive]
    return sorted(chosen[:most], key=lambda each: each.ply)

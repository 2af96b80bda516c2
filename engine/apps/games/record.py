# SPDX-License-Identifier: GPL-3.0-or-later
"""Finished games as plain data, for transmission, storage and statistics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Result = Literal["1-0", "0-1", "1/2-1/2"]

POINTS_OF_WHITE: dict[str, float] = {"1-0": 1.0, "1/2-1/2": 0.5, "0-1": 0.0}


def as_result(value: object) -> Result:
    """Return the value, if it is a result. Raises ValueError."""
    if value == "1-0" or value == "0-1" or value == "1/2-1/2":
        return value
    raise ValueError(f"{value!r} is no result")


class Reason(StrEnum):
    """Why a game ended."""

    CHECKMATE = "checkmate"
    STALEMATE = "stalemate"
    INSUFFICIENT_MATERIAL = "insufficient material"
    THREEFOLD_REPETITION = "threefold repetition"
    FIFTY_MOVES = "fifty-move rule"
    RESIGNATION = "resignation"
    ADJUDICATED_DRAW = "draw by adjudication"
    MOVE_LIMIT = "move limit"
    TABLEBASE = "tablebase"
    TIME = "time forfeit"
    ILLEGAL_MOVE = "illegal move"
    DISCONNECT = "disconnect"
    STALL = "stall"

    @property
    def termination(self) -> str:
        """The PGN tag Termination."""
        if self in (Reason.RESIGNATION, Reason.ADJUDICATED_DRAW, Reason.MOVE_LIMIT, Reason.TABLEBASE):
            return "adjudication"
        if self is Reason.TIME:
            return "time forfeit"
        if self is Reason.ILLEGAL_MOVE:
            return "rules infraction"
        if self in (Reason.DISCONNECT, Reason.STALL):
            return "abandoned"
        return "normal"

    @property
    def is_failure(self) -> bool:
        """True if the loser lost by a failure, not on the board."""
        return self in (Reason.TIME, Reason.ILLEGAL_MOVE, Reason.DISCONNECT, Reason.STALL)


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move and the player's information about it.

    uci: with castling in the game's notation. seconds: thinking time. score_cp: centipawns for the mover.
    mate: moves to mate for the mover, negative for being mated; at most one of score_cp and mate is given.
    depth, selective_depth: plies. clock_ms: time left after the move. All except uci and seconds may be None.
    """

    uci: str
    seconds: float = 0.0
    score_cp: int | None = None
    mate: int | None = None
    depth: int | None = None
    selective_depth: int | None = None
    nodes: int | None = None
    clock_ms: float | None = None

    @property
    def verdict_cp(self) -> int | None:
        """Score for adjudication. A mate exceeds all centipawns."""
        if self.mate is not None:
            return 100_000 if self.mate > 0 else -100_000
        return self.score_cp


@dataclass(frozen=True, slots=True)
class GameRecord:
    """A finished game.

    number: in the schedule, from 0. pair: shared by the games with the same opening and reversed colours.
    white, black: player numbers. detail: more about the reason, such as the illegal move. start_fen: None is
    the initial position. opening_moves, moves: UCI notation, in this order. started: UTC, ISO 8601.
    """

    number: int
    pair: int
    white: int
    black: int
    result: Result
    reason: Reason
    opening: str
    detail: str = ""
    start_fen: str | None = None
    chess960: bool = False
    opening_moves: tuple[str, ...] = ()
    moves: tuple[MoveRecord, ...] = ()
    started: str = ""
    seconds: float = 0.0

    @property
    def white_points(self) -> float:
        """White's points: 1, ½ or 0."""
        return POINTS_OF_WHITE[self.result]

    @property
    def outcome(self) -> GameOutcome:
        """The game without its moves."""
        return GameOutcome(
            self.number,
            self.pair,
            self.white,
            self.black,
            self.result,
            self.reason,
            len(self.moves),
            self.seconds,
        )

    @property
    def explanation(self) -> str:
        """The end of the game as a text, such as "Black loses on time"."""
        if self.result == "1/2-1/2":
            draw = str(self.reason).removeprefix("draw by ")
            text = f"draw by {draw}"
        else:
            winner, loser = ("White", "Black") if self.result == "1-0" else ("Black", "White")
            text = {
                Reason.CHECKMATE: f"{winner} mates",
                Reason.RESIGNATION: f"{loser} resigns (adjudicated)",
                Reason.TABLEBASE: f"{winner} wins by tablebase",
                Reason.TIME: f"{loser} loses on time",
                Reason.ILLEGAL_MOVE: f"{loser} makes an illegal move",
                Reason.DISCONNECT: f"{loser} disconnects",
                Reason.STALL: f"{loser} stalls",
            }.get(self.reason, f"{winner} wins by {self.reason}")
        return f"{text}: {self.detail}" if self.detail else text


@dataclass(frozen=True, slots=True)
class GameOutcome:
    """The result of a game for statistics. plies: without the opening. seconds: duration."""

    number: int
    pair: int
    white: int
    black: int
    result: Result
    reason: Reason
    plies: int
    seconds: float

    @property
    def white_points(self) -> float:
        """White's points: 1, ½ or 0."""
        return POINTS_OF_WHITE[self.result]

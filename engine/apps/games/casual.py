# SPDX-License-Identifier: GPL-3.0-or-later
"""A game of a person against the engine, in a terminal or a browser: its moves, its end and its PGN."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import chess
import chess.engine
import chess.pgn

from engine.apps.games.record import Reason
from engine.apps.games.referee import Verdict, end_by_rules, game_of
from engine.apps.games.typed_moves import parsed_move
from engine.search.fen import read_fen
from engine.search.strength.levels import level_of

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.report import Report

MOST_NODES = 100_000
"""Nodes of a move with limited strength, whose level searches fewer."""

HINT_NODES = 200
"""Nodes of hints and of answers to draw offers, which have full strength."""

DRAW_LIMIT = 0.02
"""Largest q, of the engine's side, at which it accepts a draw."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a game. reason: for the PGN and the person."""

    result: str
    reason: str


@dataclass(frozen=True, slots=True)
class MoveNote:
    """What the PGN tells about a move. seconds: thinking time. score: the engine's, None for the person's."""

    seconds: float
    score: chess.engine.PovScore | None = None
    depth: int | None = None

    @classmethod
    def of(cls, report: Report, mover: chess.Color) -> MoveNote:
        """Return the note on the engine's move. mover: the engine's opponent, who is to move."""
        line = next((line for line in report.lines if line.moves[:1] == (report.best_move,)), None)
        if line is None:
            return cls(report.seconds)
        score = chess.engine.Cp(line.centipawns()) if line.mate is None else chess.engine.Mate(line.mate)
        return cls(report.seconds, chess.engine.PovScore(score, not mover), report.depth)


@dataclass(slots=True)
class CasualGame:
    """board: has all moves on its stack. notes: on its last moves. end: None while the game is running.
    corrections: of the first position's FEN."""

    board: chess.Board
    notes: list[MoveNote] = field(default_factory=list)
    end: End | None = None
    corrections: Sequence[str] = ()

    @classmethod
    def of(cls, fen: str = "startpos", moves: Sequence[str] = (), *, chess960: bool = False) -> CasualGame:
        """Return the game after moves in SAN or UCI, or null moves. Raises ValueError for illegal ones."""
        board, corrections = start_of(fen, chess960=chess960)
        game = cls(board, corrections=corrections)
        for number, word in enumerate(moves, 1):
            passes = word in ("0000", "--") and not board.is_check()
            move = chess.Move.null() if passes else parsed_move(board, word)
            if move is None:
                raise ValueError(f"move {number}: {word[:20]!a} is not legal in {board.fen()}")
            board.push(move)
        game.judge()
        return game

    def push(self, move: chess.Move, note: MoveNote) -> None:
        """Play a legal move."""
        self.board.push(move)
        self.notes.append(note)
        self.judge()

    def take_back(self) -> bool:
        """Take back the last two moves; return False if there are fewer."""
        if len(self.notes) < 2:
            return False
        for _ in range(2):
            self.board.pop()
            self.notes.pop()
        return True

    def judge(self) -> None:
        """End the game if the rules do."""
        verdict = self.verdict()
        if verdict is not None and not self._to_be_claimed(verdict):
            self.end = End(verdict.result, verdict.reason)

    def verdict(self) -> Verdict | None:
        """Return the end by the rules, claimed or not; None if the game continues."""
        return end_by_rules(game_of(self.board))

    def claim(self) -> bool:
        """End the game by a draw that the person may claim; return False if there is none."""
        if self.end is None and (verdict := self.verdict()):
            self.end = End(verdict.result, verdict.reason)
            return True
        return False

    def resign(self, color: chess.Color) -> None:
        """End the game: this side resigns."""
        self.end = End("0-1" if color else "1-0", "resignation")

    def pgn(self, person: chess.Color, opponent: str, event: str) -> str:
        """Return the game as PGN, with a final empty line. opponent: name of the engine."""
        game = chess.pgn.Game.from_board(self.board)
        names = {person: "Person", not person: opponent}
        game.headers["Event"] = event
        game.headers["Date"] = datetime.datetime.now().astimezone().strftime("%Y.%m.%d")
        game.headers["White"], game.headers["Black"] = names[chess.WHITE], names[chess.BLACK]
        game.headers["Result"] = self.end.result if self.end else "*"
        game.headers["Termination"] = "normal" if self.end else "unterminated"
        for node, note in zip(game.mainline(), self.notes, strict=False):
            node.set_eval(note.score, note.depth)
            node.set_emt(note.seconds)
        if self.end:
            last = game.end()
            last.comment = f"{last.comment} {self.end.reason}".strip()
        return f"{game}\n\n"

    def _to_be_claimed(self, verdict: Verdict) -> bool:
        """Return whether the person decides about the draw: by the laws of chess only the fifth occurrence of
        a position ends a game without a claim."""
        return verdict.reason is Reason.THREEFOLD_REPETITION and not self.board.is_fivefold_repetition()


def start_of(fen: str | None, *, chess960: bool) -> tuple[chess.Board, Sequence[str]]:
    """Return the board to begin with, and corrections of its FEN. Raises ValueError."""
    if fen is None or fen == "startpos":
        return chess.Board(chess960=chess960), ()
    game, corrections = read_fen(fen, chess960)
    return chess.Board(game.fen(), chess960=chess960), corrections


def opponent(options: Options, nodes: int | None) -> str:
    """Return the engine's name in the PGN."""
    if nodes is not None:
        return f"Wavefront, {nodes} nodes"
    level = level_of(options)
    elo = None if level is None else level.elo
    return "Wavefront, HumanPlay" if elo is None else f"Wavefront, Elo {elo}"

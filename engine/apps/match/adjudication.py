# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of games by adjudication, before the rules of chess end them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import chess
import chess.syzygy

from engine.apps.games.record import MoveRecord, Reason
from engine.apps.games.referee import Verdict, win_for
from protocol.common.folders import expanded
from protocol.common.printing import ReportedError
from protocol.common.settings.spec import UNREACHED, setting

TablebaseResults = Literal["all", "wins", "draws"]


@dataclass(frozen=True, slots=True)
class ResignRule:
    """A player loses that evaluates its own position at -`score` centipawns or worse for `moves` consecutive
    moves. two_sided: only if the opponent agrees."""

    score: int = setting(600, high=100_000)
    moves: int = setting(4, low=1, high=UNREACHED)
    two_sided: bool = setting(False)


@dataclass(frozen=True, slots=True)
class DrawRule:
    """A game is drawn after `moves` consecutive moves within `score` centipawns of equal, by both players. It
    applies from move `from_move` on, and captures and pawn moves restart the count."""

    from_move: int = setting(40, high=UNREACHED)
    moves: int = setting(8, low=1, high=UNREACHED)
    score: int = setting(10, high=100_000)


@dataclass(frozen=True, slots=True)
class TablebaseRule:
    """Games end with the result of the Syzygy tables in `paths`. men: largest table to use; 0 uses all.
    results: results that end a game. ignore_fifty_moves: wins that exceed the 50-move rule count as wins."""

    paths: tuple[str, ...] = setting(())
    men: int = setting(0, high=7)
    results: TablebaseResults = setting("all", choices=get_args(TablebaseResults))
    ignore_fifty_moves: bool = setting(False)


@dataclass(frozen=True, slots=True)
class Adjudication:
    """Adjudication rules; None disables one. max_moves: full moves, opening included, after which a game is
    drawn."""

    resign: ResignRule | None = None
    draw: DrawRule | None = None
    max_moves: int | None = None
    tablebase: TablebaseRule | None = None


class TablebaseError(ReportedError, ValueError):
    """Syzygy tables are unusable. The message names the folder."""


class Tablebases:
    """Adjudication by Syzygy tables."""

    def __init__(self, rule: TablebaseRule, tables: chess.syzygy.Tablebase) -> None:
        self._rule = rule
        self._tables = tables
        available = max((len(name) - 1 for name in tables.wdl), default=0)
        self.men = min(rule.men or available, available)

    def judge(self, board: chess.Board, *, first: bool = False) -> Verdict | None:
        """Return the verdict for a position with a 50-move count of 0, or a game's first position. Otherwise
        the value depends on the count. None if there is none that counts."""
        rule = self._rule
        if chess.popcount(board.occupied) > self.men or board.castling_rights:
            return None
        if board.halfmove_clock and not first and not rule.ignore_fifty_moves:
            return None
        value = self._tables.get_wdl(board)
        if value is None:
            return None
        wins = 1 if rule.ignore_fifty_moves else 2
        if abs(value) < wins:
            return Verdict("1/2-1/2", Reason.TABLEBASE) if rule.results != "wins" else None
        if rule.results == "draws" or (board.halfmove_clock and not rule.ignore_fifty_moves):
            return None
        return Verdict(win_for(board.turn if value > 0 else not board.turn), Reason.TABLEBASE)


@contextmanager
def open_tablebases(rule: TablebaseRule | None) -> Iterator[Tablebases | None]:
    """Open the tables of a rule for this context. Raises TablebaseError if there are none."""
    if rule is None:
        yield None
        return
    with chess.syzygy.Tablebase() as tables:
        for folder in (part for path in rule.paths for part in path.split(os.pathsep) if part):
            try:
                found = tables.add_directory(str(expanded(folder)), load_dtz=False)
            except OSError as error:
                raise TablebaseError(f"cannot read the tablebases in {folder}: {error.strerror}") from None
            if not found:
                raise TablebaseError(f"{folder} holds no Syzygy tables (.rtbw)")
        yield Tablebases(rule, tables)


class Adjudicator:
    """Adjudicate one game by the configured rules."""

    def __init__(self, rules: Adjudication, tablebases: Tablebases | None = None) -> None:
        self._rules = rules
        self._tablebases = tablebases
        self._lost = {chess.WHITE: 0, chess.BLACK: 0}
        self._won = {chess.WHITE: 0, chess.BLACK: 0}
        self._level = {chess.WHITE: 0, chess.BLACK: 0}

    def judge_start(self, board: chess.Board) -> Verdict | None:
        """Return the verdict before the first move, or None."""
        return self._tablebases.judge(board, first=True) if self._tablebases is not None else None

    def judge(self, board: chess.Board, move: MoveRecord) -> Verdict | None:
        """Return the verdict after `move`, the last one on the board, or None."""
        mover = not board.turn
        verdict = self._resignation(mover, move.verdict_cp) or self._draw(board, mover, move.verdict_cp)
        if verdict is None and self._tablebases is not None:
            verdict = self._tablebases.judge(board)
        limit = self._rules.max_moves
        if verdict is None and limit is not None and len(board.move_stack) >= 2 * limit:
            verdict = Verdict("1/2-1/2", Reason.MOVE_LIMIT)
        return verdict

    def _resignation(self, mover: chess.Color, score: int | None) -> Verdict | None:
        rule = self._rules.resign
        if rule is None:
            return None
        self._lost[mover] = self._lost[mover] + 1 if score is not None and score <= -rule.score else 0
        self._won[mover] = self._won[mover] + 1 if score is not None and score >= rule.score else 0
        for loser in chess.COLORS:
            agreed = not rule.two_sided or self._won[not loser] >= rule.moves
            if self._lost[loser] >= rule.moves and agreed:
                return Verdict(win_for(not loser), Reason.RESIGNATION)
        return None

    def _draw(self, board: chess.Board, mover: chess.Color, score: int | None) -> Verdict | None:
        rule = self._rules.draw
        if rule is None:
            return None
        if board.halfmove_clock == 0:  # An irreversible move: earlier evaluations do not count.
            self._level = {chess.WHITE: 0, chess.BLACK: 0}
        level = score is not None and abs(score) <= rule.score
        self._level[mover] = self._level[mover] + 1 if level else 0
        number = (board.ply() + 1) // 2  # of the last move
        if number >= rule.from_move and min(self._level.values()) >= rule.moves:
            return Verdict("1/2-1/2", Reason.ADJUDICATED_DRAW)
        return None

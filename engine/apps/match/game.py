# SPDX-License-Identifier: GPL-3.0-or-later
"""The play of one game between two players, move by move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter

import chess

from engine.apps.games.openings import Opening
from engine.apps.games.record import GameRecord, MoveRecord, Reason
from engine.apps.games.referee import Verdict, end_by_rules, out_of_time, win_for
from engine.apps.match.adjudication import Adjudication, Adjudicator, Tablebases
from engine.apps.match.players.player import Clocks, ForfeitError, MatchPlayer, Position
from engine.apps.match.schedule import ScheduledGame
from engine.apps.match.timecontrol import GameClock
from engine.evaluation.errors import NetworkChangedError

PATIENCE_SECONDS = 0.5
"""Delay of `stop` after a player's time is over."""


@dataclass(frozen=True, slots=True)
class GameRules:
    """The common rules of a match's games, with fields from MatchConfig. moved: called after each move."""

    adjudication: Adjudication
    tablebases: Tablebases | None = None
    chess960: bool = False
    time_margin_ms: float = 100.0
    stall_seconds: float = 120.0
    moved: Callable[[], None] = lambda: None


async def play_game(
    scheduled: ScheduledGame, opening: Opening, white: MatchPlayer, black: MatchPlayer, rules: GameRules
) -> GameRecord:
    """Play a game to its end. Failures of players become results with a reason; only PlayerError is raised.
    If a player's network changes, the game restarts."""
    while True:
        with suppress(NetworkChangedError):
            return await _play_once(scheduled, opening, white, black, rules)


async def _play_once(
    scheduled: ScheduledGame, opening: Opening, white: MatchPlayer, black: MatchPlayer, rules: GameRules
) -> GameRecord:
    """Same as `play_game`, but raises NetworkChangedError."""
    started, began = datetime.now(UTC), perf_counter()
    board = opening.board(chess960=rules.chess960)
    position = Position(board)
    clocks = Clocks(
        GameClock(white.config.time, margin_ms=rules.time_margin_ms),
        GameClock(black.config.time, margin_ms=rules.time_margin_ms),
    )
    moves: list[MoveRecord] = []
    verdict = await _play(position, {chess.WHITE: white, chess.BLACK: black}, clocks, rules, moves)
    return GameRecord(
        number=scheduled.number,
        pair=scheduled.pair,
        white=scheduled.white,
        black=scheduled.black,
        result=verdict.result,
        reason=verdict.reason,
        detail=verdict.detail,
        opening=opening.name,
        start_fen=opening.fen,
        chess960=rules.chess960,
        opening_moves=opening.moves,
        moves=tuple(moves),
        started=started.isoformat(timespec="seconds"),
        seconds=perf_counter() - began,
    )


async def _play(
    position: Position,
    players: dict[chess.Color, MatchPlayer],
    clocks: Clocks,
    rules: GameRules,
    moves: list[MoveRecord],
) -> Verdict:
    board = position.board
    adjudicator = Adjudicator(rules.adjudication, rules.tablebases)
    for color in chess.COLORS:
        try:
            await players[color].new_game()
        except ForfeitError as fault:
            return Verdict(win_for(not color), fault.reason, str(fault))
    networks: dict[Hashable, str] = {}
    verdict = adjudicator.judge_start(board)
    while verdict is None:
        mover = board.turn
        clock = clocks.of(mover)
        try:
            thought = await players[mover].think(
                position, clocks, patience_seconds=_patience(clock, rules.stall_seconds)
            )
        except ForfeitError as fault:
            return _forfeit(board, fault, clock)
        if thought.network is not None:
            asked, found = thought.network
            if networks.setdefault(asked, found) != found:
                raise NetworkChangedError("another network evaluates than for the moves so far")
        answer = thought.answer
        try:
            move = _legal(board, answer.move)
        except ValueError as error:
            return Verdict(win_for(not mover), Reason.ILLEGAL_MOVE, str(error))
        if not clock.spend(thought.seconds * 1000):
            return out_of_time(board)
        record = MoveRecord(
            uci=position.push(move),
            seconds=round(thought.seconds, 4),
            score_cp=answer.score_cp,
            mate=answer.mate,
            depth=answer.depth,
            selective_depth=answer.selective_depth,
            nodes=answer.nodes,
            clock_ms=clock.remaining_ms,
        )
        moves.append(record)
        rules.moved()
        verdict = end_by_rules(position.core) or adjudicator.judge(board, record)
        if verdict is None and answer.ponder and players[mover].config.ponder:
            players[mover].ponder(position, clocks, answer.ponder)
        if len(moves) % 16 == 0:
            await asyncio.sleep(0)  # Players that answer at once must not block the event loop.
    return verdict


def _patience(clock: GameClock, stall_seconds: float) -> float:
    allowed = clock.allowed_ms
    return stall_seconds if allowed is None else allowed / 1000 + PATIENCE_SECONDS


def _legal(board: chess.Board, text: str | None) -> chess.Move:
    """Return the move of an answer. Raises ValueError with the reason if it is not legal."""
    if text is None:
        raise ValueError(f"no move in {board.fen()}")
    try:
        move = board.parse_uci(text)
    except ValueError:
        raise ValueError(f"{text[:20]} in {board.fen()}") from None
    if not move:
        raise ValueError(f"null move in {board.fen()}")
    return move


def _forfeit(board: chess.Board, fault: ForfeitError, clock: GameClock) -> Verdict:
    """Return the verdict for a game whose mover fails."""
    if fault.reason is Reason.TIME and clock.allowed_ms is not None:
        return out_of_time(board)
    reason = Reason.STALL if fault.reason is Reason.TIME else fault.reason
    return Verdict(win_for(not board.turn), reason, str(fault))

# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a player, and its implementation by this engine.

All players of this engine in a match share one `SearchPool`: one process, one evaluator, and batches with the
positions of all games.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import chess

from engine._core import Game
from engine.apps.games.record import Reason
from engine.apps.games.referee import game_of
from engine.apps.match.config import PlayerConfig
from engine.apps.match.players.uci_client import UciAnswer
from engine.apps.match.timecontrol import GameClock
from engine.evaluation.errors import NoEvaluatorError, PipelineError
from engine.evaluation.link.process import EvaluatorSettings
from engine.options import Options
from engine.search.limits import Clock, Limits

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.search.pool import SearchPool
    from engine.search.report import Report

INTERRUPT_SECONDS = 5.0
"""Timeout for the answer to `stop`, after which a player counts as stalled."""


class PlayerError(Exception):
    """A player cannot play at all: a program does not start, or an evaluator is lost permanently. The match
    ends, and no player loses a game by it. The message gives the reason."""


class ForfeitError(Exception):
    """A player fails in a game, and loses it for `reason`. The message gives details."""

    def __init__(self, reason: Reason, message: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Thought:
    """A player's answer, and its thinking time. network: the requested network and the identity of the one
    that evaluated, for this engine."""

    answer: UciAnswer
    seconds: float
    network: tuple[Hashable, str] | None = None


class Position:
    """A running game: the board, and its representations for the players and the referee."""

    def __init__(self, board: chess.Board) -> None:
        """board: has the opening's moves on its stack."""
        self.board = board
        root = board.root()
        self._core: Game | None = None
        start = root.fen(shredder=board.chess960, en_passant="fen")
        words = ["position", "startpos" if start == chess.STARTING_FEN else f"fen {start}"]
        for number, move in enumerate(board.move_stack):
            words += ["moves", root.uci(move)] if number == 0 else [root.uci(move)]
            root.push(move)
        self.uci_line = " ".join(words)
        """The UCI `position` command for programs."""

    @property
    def core(self) -> Game:
        """The game for the search and for the referee."""
        if self._core is None:
            self._core = game_of(self.board)
        return self._core

    def push(self, move: chess.Move) -> str:
        """Play a legal move, and return it in UCI notation, with castling in the game's notation."""
        uci = self.board.uci(move)
        self.uci_line += f" {uci}" if self.board.move_stack else f" moves {uci}"
        if self._core is not None:
            self._core.push_uci(move.uci())
        self.board.push(move)
        return uci


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a game."""

    white: GameClock
    black: GameClock

    def of(self, color: chess.Color) -> GameClock:
        return self.white if color == chess.WHITE else self.black


class MatchPlayer(Protocol):
    """One side of one game at a time. Only the event loop may use it."""

    config: PlayerConfig

    @property
    def alive(self) -> bool:
        """False before `start` and after a failure: it must be (re)started."""

    async def start(self) -> None:
        """Start or restart it. Raises PlayerError."""

    async def new_game(self) -> None:
        """Prepare for a position of another game. Raises ForfeitError."""

    async def think(self, position: Position, clocks: Clocks, *, patience_seconds: float | None) -> Thought:
        """Choose a move.

        patience_seconds: timeout from the request. Raises ForfeitError: TIME or STALL after the timeout,
        DISCONNECT if the player is gone. Raises PlayerError.
        """

    def ponder(self, position: Position, clocks: Clocks, reply: str) -> None:
        """Think on the opponent's time about the position after an expected reply, if the player can.

        Called if its configuration says so, after its move. Its next call is `think` or `new_game`.
        """

    async def close(self) -> None:
        """Stop it. Idempotent."""


class EnginePlayer:
    """This engine as a player of a search pool."""

    def __init__(self, config: PlayerConfig, pool: SearchPool) -> None:
        self.config = config
        self._pool = pool
        self._player = pool.player(config.options)
        self.alive = True

    async def start(self) -> None:
        # A hung search keeps its tree, so the player gets another one.
        self._player = self._pool.player(self.config.options)
        self.alive = True

    def use(self, options: Options) -> None:
        """Play the next game with these options. Those of the evaluator must not change."""
        self.config = replace(self.config, options=options)
        self._player.options = options

    async def check(self) -> None:
        """Search one node to verify that the evaluator serves the network. Raises PlayerError."""
        future = self._player.search(Game(None, self.config.options.chess960), Limits(nodes=1))
        try:
            await asyncio.shield(asyncio.wrap_future(future))
        except (NoEvaluatorError, PipelineError) as error:
            raise PlayerError(f"{self.config.name}: {error}") from None
        self._player.new_game()

    async def new_game(self) -> None:
        self._player.new_game()

    async def think(self, position: Position, clocks: Clocks, *, patience_seconds: float | None) -> Thought:
        finished = 0.0

        def note_time(_: Future[Report]) -> None:
            nonlocal finished
            finished = perf_counter()

        started = perf_counter()
        limits = search_limits(self.config, position.board.turn, clocks)
        future = self._player.search(position.core, limits, clock_started=started, play=True)
        # Measured in the pool's thread, because delays of the event loop are not the player's.
        future.add_done_callback(note_time)
        searched = asyncio.wrap_future(future)
        searched.add_done_callback(retrieve)
        try:
            async with asyncio.timeout(patience_seconds):
                report = await asyncio.shield(searched)
        except TimeoutError:
            self._player.stop()
            try:
                async with asyncio.timeout(INTERRUPT_SECONDS):
                    await asyncio.shield(searched)
            except (TimeoutError, NoEvaluatorError, PipelineError):
                self.alive = False
                raise ForfeitError(Reason.STALL, "the search does not end") from None
            raise ForfeitError(Reason.TIME) from None
        except asyncio.CancelledError:
            self._player.stop()
            raise
        except (NoEvaluatorError, PipelineError) as error:
            raise PlayerError(f"{self.config.name}: {error}") from None
        line = report.lines[0] if report.lines else None
        answer = UciAnswer(
            report.best_move,
            score_cp=line.centipawns() if line is not None and line.mate is None else None,
            mate=line.mate if line is not None else None,
            depth=report.depth,
            selective_depth=report.selective_depth,
            nodes=report.nodes,
        )
        network = (EvaluatorSettings.of(self.config.options), report.network) if report.network else None
        return Thought(answer, finished - started, network)

    def ponder(self, position: Position, clocks: Clocks, reply: str) -> None:
        """Do nothing: players of this engine share an evaluator. One would think on the time of all."""

    async def close(self) -> None:
        self.alive = False
        self._player.stop()


def retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve a future's exception, because asyncio prints unretrieved ones."""
    if not future.cancelled():
        future.exception()


def search_limits(config: PlayerConfig, turn: chess.Color, clocks: Clocks) -> Limits:
    """Return the limits of this engine's next search."""
    time = config.time
    clock = None
    own = clocks.of(turn)
    if own.remaining_ms is not None:
        clock = Clock(
            white_ms=_whole_ms(clocks.white),
            black_ms=_whole_ms(clocks.black),
            white_increment_ms=clocks.white.control.increment_ms,
            black_increment_ms=clocks.black.control.increment_ms,
            moves_to_go=own.moves_to_go,
        )
    return Limits(clock=clock, movetime_ms=time.movetime_ms, nodes=time.nodes, depth=time.depth)


def _whole_ms(clock: GameClock) -> int | None:
    return None if clock.remaining_ms is None else max(1, int(clock.remaining_ms))

"""A UCI engine that runs as a program, through python-chess."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections import deque
from time import perf_counter
from typing import Any

import chess
import chess.engine

from engine.match.config import PlayerConfig
from engine.match.players import (
    INTERRUPT_SECONDS,
    Clocks,
    ForfeitError,
    PlayerError,
    Position,
    Thought,
    retrieve,
)
from engine.match.record import Reason
from engine.match.timecontrol import GameClock

# What python-chess thinks of a program's output is not for the terminal.
logging.getLogger("chess.engine").addHandler(logging.NullHandler())

START_SECONDS = 60.0
"""Until `readyok` after the options: some engines load large files here."""

NEW_GAME_SECONDS = 60.0
"""From `ucinewgame` to `readyok`."""

QUIT_SECONDS = 2.0
"""From `quit` to the end of the process, before it is killed."""


class _TimedProtocol(chess.engine.UciProtocol):
    """Notes when a search was asked for and answered, and the last words on standard error.

    python-chess sends `ucinewgame` with the first move of a game; that time is not the player's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.went = asyncio.Event()
        self.went_at = 0.0
        self.answered_at = 0.0
        self.last_words: deque[str] = deque(maxlen=3)

    def send_line(self, line: str) -> None:
        super().send_line(line)
        if line.startswith("go"):
            self.went_at = perf_counter()
            self.went.set()

    def line_received(self, line: str) -> None:
        super().line_received(line)
        if line.startswith("bestmove"):
            self.answered_at = perf_counter()

    def error_line_received(self, line: str) -> None:
        self.last_words.append(line[:200])


class ProgramPlayer:
    """A program that speaks UCI."""

    def __init__(self, config: PlayerConfig) -> None:
        self.config = config
        self._protocol: _TimedProtocol | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._game = object()

    @property
    def alive(self) -> bool:
        return self._protocol is not None and not self._protocol.returncode.done()

    @property
    def pid(self) -> int | None:
        """Process id of the program, None if it does not run."""
        return self._transport.get_pid() if self._transport is not None and self.alive else None

    async def start(self) -> None:
        self._kill()
        command = list(self.config.command)
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                _TimedProtocol, *command, cwd=self.config.directory or None, **_apart()
            )
        except OSError as error:
            raise PlayerError(f"{self.config.name}: cannot start {command[0]}: {error.strerror}") from None
        self._transport, self._protocol = transport, protocol
        try:
            async with asyncio.timeout(START_SECONDS):
                await protocol.initialize()
                await protocol.configure(dict(self.config.uci_options))
                await protocol.ping()
        except TimeoutError:
            self._kill()
            raise PlayerError(f"{self.config.name}: {command[0]} does not answer as a UCI engine") from None
        except chess.engine.EngineError as error:
            message = self._last_words(str(error))
            self._kill()
            raise PlayerError(f"{self.config.name}: {message}") from None

    async def new_game(self) -> None:
        self._game = object()

    def supports(self, option: str) -> bool:
        """Whether the program has an option of this UCI name, in any case."""
        return self._protocol is not None and option in self._protocol.options

    async def think(self, position: Position, clocks: Clocks, *, patience_seconds: float | None) -> Thought:
        protocol = self._protocol
        if protocol is None:
            raise ForfeitError(Reason.DISCONNECT, "the program is gone")
        protocol.went.clear()
        move = asyncio.ensure_future(
            protocol.play(
                position.board,
                _limit(self.config, position.board.turn, clocks),
                game=self._game,
                info=chess.engine.INFO_BASIC | chess.engine.INFO_SCORE,
            )
        )
        move.add_done_callback(retrieve)
        try:
            await self._until_asked(protocol, move)
            late = 0.0 if patience_seconds is None else perf_counter() - protocol.went_at
            timeout = None if patience_seconds is None else max(0.0, patience_seconds - late)
            async with asyncio.timeout(timeout):
                played = await asyncio.shield(move)
        except TimeoutError:
            await self._interrupt(protocol, move)
            raise ForfeitError(Reason.TIME) from None
        except asyncio.CancelledError:
            move.cancel()
            raise
        except chess.engine.EngineTerminatedError:
            raise ForfeitError(Reason.DISCONNECT, self._last_words("the program has ended")) from None
        except chess.engine.EngineError as error:
            raise ForfeitError(Reason.ILLEGAL_MOVE, str(error)) from None
        score = played.info.get("score")
        relative = score.relative if score is not None else None
        return Thought(
            move=None if played.move is None else position.board.uci(played.move),
            seconds=max(0.0, protocol.answered_at - protocol.went_at),
            score_cp=relative.score() if relative is not None else None,
            mate=relative.mate() if relative is not None else None,
            depth=played.info.get("depth"),
            selective_depth=played.info.get("seldepth"),
            nodes=played.info.get("nodes"),
        )

    async def close(self) -> None:
        protocol = self._protocol
        if protocol is not None and self.alive:
            with contextlib.suppress(TimeoutError, chess.engine.EngineError):
                async with asyncio.timeout(QUIT_SECONDS):
                    await protocol.quit()
        self._kill()

    async def _until_asked(
        self, protocol: _TimedProtocol, move: asyncio.Future[chess.engine.PlayResult]
    ) -> None:
        """Wait until the search has begun: an engine may take its time over a new game."""
        if protocol.went.is_set():
            return
        went = asyncio.ensure_future(protocol.went.wait())
        try:
            await asyncio.wait((went, move), timeout=NEW_GAME_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            went.cancel()
        if not protocol.went.is_set() and not move.done():
            move.cancel()
            self._kill()
            raise ForfeitError(Reason.STALL, "no answer to ucinewgame and isready")

    async def _interrupt(
        self, protocol: _TimedProtocol, move: asyncio.Future[chess.engine.PlayResult]
    ) -> None:
        """Stop a search that takes too long. Raises ForfeitError if the program does not even answer that."""
        move.cancel()  # python-chess sends `stop`.
        try:
            async with asyncio.timeout(INTERRUPT_SECONDS):
                await protocol.ping()
        except (TimeoutError, chess.engine.EngineError):
            self._kill()
            raise ForfeitError(Reason.STALL, "no answer to stop and isready") from None

    def _last_words(self, message: str) -> str:
        words = " / ".join(self._protocol.last_words) if self._protocol is not None else ""
        return f"{message}: {words}" if words else message

    def _kill(self) -> None:
        transport, self._transport, self._protocol = self._transport, None, None
        if transport is not None:
            with contextlib.suppress(ProcessLookupError):
                transport.kill()
            transport.close()


def _apart() -> dict[str, Any]:
    """Arguments that put a process into a group of its own: Ctrl-C in a terminal is for the runner, and
    must not end the programs first, which would lose their games."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"process_group": 0}


def _limit(config: PlayerConfig, turn: chess.Color, clocks: Clocks) -> chess.engine.Limit:
    time = config.time
    limit = chess.engine.Limit(
        time=None if time.movetime_ms is None else time.movetime_ms / 1000,
        nodes=time.nodes,
        depth=time.depth,
    )
    own = clocks.of(turn)
    if own.remaining_ms is not None:
        limit.white_clock, limit.black_clock = _seconds(clocks.white), _seconds(clocks.black)
        limit.white_inc = clocks.white.control.increment_ms / 1000
        limit.black_inc = clocks.black.control.increment_ms / 1000
        limit.remaining_moves = own.moves_to_go
    return limit


def _seconds(clock: GameClock) -> float | None:
    return None if clock.remaining_ms is None else max(0.001, clock.remaining_ms / 1000)

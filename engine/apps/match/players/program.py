# SPDX-License-Identifier: GPL-3.0-or-later
"""A player that is a UCI engine in another process."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import chess

from engine.apps.games.record import Reason
from engine.apps.match.config import PlayerConfig, UciValue
from engine.apps.match.players.player import (
    INTERRUPT_SECONDS,
    Clocks,
    ForfeitError,
    PlayerError,
    Position,
    Thought,
)
from engine.apps.match.players.uci_client import ProgramGoneError, UciClient, UciError

START_SECONDS = 60.0
"""Timeout for `readyok` after the options, when some engines load large files."""

NEW_GAME_SECONDS = 60.0
"""Timeout from `ucinewgame` to `readyok`. This time is not on the player's clock."""


class ProgramPlayer:
    """A UCI program. chess960: set UCI_Chess960 if supported. preferred: options to set if supported and not
    configured."""

    def __init__(
        self, config: PlayerConfig, *, chess960: bool = False, preferred: Mapping[str, UciValue] | None = None
    ) -> None:
        self.config = config
        self._chess960 = chess960
        named = {name.lower() for name in config.uci_options}
        self._preferred = {
            name: value for name, value in (preferred or {}).items() if name.lower() not in named
        }
        self._client: UciClient | None = None
        self._pondered = ""
        """Line of UCI with the position that the program ponders; empty if it does not."""

    @property
    def alive(self) -> bool:
        return self._client is not None and self._client.alive

    @property
    def pid(self) -> int | None:
        """Process id of the program; None if it does not run."""
        return self._client.pid if self._client is not None else None

    async def start(self) -> None:
        self._kill()
        command = self.config.command
        try:
            client = self._client = await UciClient.start(command, self.config.directory or None)
        except OSError as error:
            if self.config.directory and not Path(self.config.directory).is_dir():
                raise PlayerError(
                    f"{self.config.name}: there is no directory {self.config.directory} to start it in"
                ) from None
            program = command[0]
            hint = (
                "check the path" if os.sep in program else f"it is not in PATH ({os.environ.get('PATH', '')})"
            )
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
                hint = "fewer games at once (--concurrency) need less"
            raise PlayerError(
                f"{self.config.name}: cannot start {program}: {error.strerror}; {hint}"
            ) from None
        try:
            async with asyncio.timeout(START_SECONDS):
                await client.initialise()
                client.configure(
                    {name: value for name, value in self._preferred.items() if self.supports(name)}
                )
                client.configure(self.config.uci_options)
                if self.config.ponder and self.supports("Ponder"):
                    client.configure({"Ponder": True})
                if self._chess960 and self.supports("UCI_Chess960"):
                    client.configure({"UCI_Chess960": True})
                await client.ping()
        except TimeoutError:
            self._kill()
            raise PlayerError(f"{self.config.name}: {command[0]} does not answer as a UCI engine") from None
        except UciError as error:
            message = self._last_words(str(error))
            self._kill()
            raise PlayerError(f"{self.config.name}: {message}") from None

    async def new_game(self) -> None:
        self._pondered = ""
        try:
            async with asyncio.timeout(NEW_GAME_SECONDS):
                await self._running().new_game()
        except TimeoutError:
            self._kill()
            raise ForfeitError(Reason.STALL, "no answer to ucinewgame and isready") from None
        except ProgramGoneError as error:
            raise ForfeitError(Reason.DISCONNECT, self._last_words(str(error))) from None

    def supports(self, option: str) -> bool:
        """Return True if the program has an option with this UCI name, in any case."""
        return self._client is not None and option.lower() in self._client.options

    async def think(self, position: Position, clocks: Clocks, *, patience_seconds: float | None) -> Thought:
        client = self._running()
        go = go_line(self.config, position.board.turn, clocks)
        pondered, self._pondered = self._pondered, ""
        started = perf_counter()
        try:
            try:
                async with asyncio.timeout(patience_seconds):
                    if pondered == position.uci_line:
                        answer = await client.ponder_hit()
                    else:
                        if pondered:
                            await client.stop()
                        answer = await client.search(position.uci_line, go)
            except TimeoutError:
                async with asyncio.timeout(INTERRUPT_SECONDS):
                    await client.stop()
                raise ForfeitError(Reason.TIME) from None
        except TimeoutError:
            self._kill()
            raise ForfeitError(Reason.STALL, "no answer to stop") from None
        except ProgramGoneError as error:
            raise ForfeitError(Reason.DISCONNECT, self._last_words(str(error))) from None
        return Thought(answer, client.answered_at - (started if pondered else client.went_at))

    def ponder(self, position: Position, clocks: Clocks, reply: str) -> None:
        board = position.board
        try:
            move = board.parse_uci(reply)
        except ValueError:
            return  # The game is judged by moves; a wrong expectation is only useless.
        separator = " " if board.move_stack else " moves "
        line = f"{position.uci_line}{separator}{board.uci(move)}"
        go = go_line(self.config, not board.turn, clocks)
        try:
            self._running().begin_pondering(line, go.replace("go", "go ponder", 1))
        except (ProgramGoneError, ForfeitError):
            return  # The next move will say so.
        self._pondered = line

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _running(self) -> UciClient:
        if self._client is None:
            raise ForfeitError(Reason.DISCONNECT, "the program is gone")
        return self._client

    def _last_words(self, message: str) -> str:
        words = " / ".join(self._client.last_words) if self._client is not None else ""
        return f"{message}: {words}" if words else message

    def _kill(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.kill()


def go_line(config: PlayerConfig, turn: chess.Color, clocks: Clocks) -> str:
    """Return the `go` command for the side to move, with its limits and the clocks."""
    time = config.time
    words = ["go"]
    own = clocks.of(turn)
    if own.remaining_ms is not None:
        for color, clock in (("w", clocks.white), ("b", clocks.black)):
            if clock.remaining_ms is not None:
                words.append(
                    f"{color}time {max(1, int(clock.remaining_ms))} {color}inc {clock.control.increment_ms}"
                )
        if own.moves_to_go is not None:
            words.append(f"movestogo {own.moves_to_go}")
    for name, limit in (("depth", time.depth), ("nodes", time.nodes), ("movetime", time.movetime_ms)):
        if limit is not None:
            words.append(f"{name} {limit}")
    return " ".join(words)

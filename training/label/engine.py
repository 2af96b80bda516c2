# SPDX-License-Identifier: GPL-3.0-or-later
"""A UCI engine that labels positions. It is restarted if it exits, hangs or sends invalid output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from engine._core import Game
from engine.apps.match.players.uci_client import UciClient, UciError
from engine.apps.shards import move_code
from protocol.common.printing import ReportedError
from training.data.tablebases import open_tablebases
from training.label.exact import exact_label
from training.label.lines import EngineLine, Label, parse_lines
from training.label.settings import LabelSettings

ATTEMPTS = 3
"""Maximum failed engines at one position or at the start."""

START_SECONDS = 60.0
"""Timeout for an engine's start; some load large files."""

DEPTH_LIMIT = 40
"""Depth limit: in a dead endgame iterations take almost no time, and their number means nothing."""

GIVEN = {"Threads": "1", "Hash": "16"}
"""Options set if the engine has them and the user has not set them."""


class NoEngineError(ReportedError):
    """No engine can be started. The message gives the reason."""


class SearchFailedError(Exception):
    """All engines failed at a position. The message gives the reason."""


class _FailedError(Exception):
    """An engine is unusable."""


class Labeller:
    """An engine that labels games in sequence. Used in the event loop only. Tablebases label the positions
    that they have.

    log: receives messages about failed engines. Attributes: number of searches and labels; undisturbed: the
    same engine has run since `new_game`, so its hash has all searches since then.
    """

    def __init__(self, settings: LabelSettings, log: Callable[[str], None]) -> None:
        self._settings = settings
        self._log = log
        self._tables = open_tablebases(settings.tablebases, lambda text: None)
        self._client: UciClient | None = None
        self._multipv = 1
        self.searches = 0
        self.labels = 0
        self.undisturbed = False

    @property
    def name(self) -> str:
        """The running engine's name for itself."""
        return "" if self._client is None else self._client.name

    async def start(self) -> None:
        """Start an engine unless one is running. Raises NoEngineError."""
        reason = ""
        for _ in range(ATTEMPTS):
            if self._client is not None and self._client.alive:
                return
            try:
                await self._start()
                return
            except _FailedError as error:
                reason = str(error)
        raise NoEngineError(reason)

    async def new_game(self) -> None:
        """Clear the hash. Raises NoEngineError."""
        await self.start()
        assert self._client is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._client.new_game()
        except (TimeoutError, UciError):
            self._failed("no answer to ucinewgame")
            await self.start()
        self.undisturbed = True

    async def label(self, game: Game, settings: LabelSettings | None = None) -> Label:
        """Label the current position, which must not be the end of the game.

        settings: give nodes and lines instead of the labeller's. A failed engine is replaced and the search
        retried. Raises SearchFailedError and NoEngineError.
        """
        if self._tables is not None:
            exact = exact_label(game, self._tables, self._settings.multipv)
            if exact is not None:
                self.labels += settings is None
                return exact
        reason = ""
        for _ in range(ATTEMPTS):
            await self.start()
            try:
                label = await self._label(game, settings or self._settings)
                self.labels += settings is None
                return label
            except _FailedError as error:
                reason = str(error)
                self._failed(reason)
        raise SearchFailedError(f"{ATTEMPTS} engines failed at {game.fen()}: {reason}")

    async def close(self) -> None:
        """Stop the engine with `quit`, then kill it."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def kill(self) -> None:
        """Kill the engine."""
        if self._client is not None:
            self._client.kill()
        await self.close()

    async def _start(self) -> None:
        settings = self._settings
        program = settings.command[0]
        try:
            client = await UciClient.start(settings.command)
        except OSError as error:
            hint = (
                "check the path" if os.sep in program else f"it is not in PATH ({os.environ.get('PATH', '')})"
            )
            raise _FailedError(f"cannot start {program}: {error.strerror}; {hint}") from None
        try:
            async with asyncio.timeout(START_SECONDS):
                await client.initialise()
                options = settings.engine_options()
                given = {name.lower() for name in options}
                for name, value in GIVEN.items():
                    if name.lower() in client.options and name.lower() not in given:
                        options[name] = value
                if settings.multipv > 1 and "multipv" not in client.options:
                    raise UciError("it has no option MultiPV: label with --multipv 1")
                client.configure(options)
                await client.ping()
        except (TimeoutError, UciError) as error:
            words = " / ".join(client.last_words)
            client.kill()
            await client.close()
            what = str(error) or "it does not answer as a UCI engine"
            raise _FailedError(f"{program}: {what}{f': {words}' if words else ''}") from None
        except asyncio.CancelledError:  # The run is over.
            client.kill()
            raise
        self._client, self._multipv, self.undisturbed = client, 1, False

    def _failed(self, reason: str) -> None:
        """Kill the engine; `start` starts a new one."""
        client, self._client = self._client, None
        self._log(f"an engine is replaced: {reason}")
        if client is not None:
            client.kill()

    async def _label(self, game: Game, settings: LabelSettings) -> Label:
        legal = game.legal_moves()
        moves = game.moves()
        position = f"position fen {game.start_fen()}" + (f" moves {' '.join(moves)}" if moves else "")
        (best,) = await self._search(position, settings.nodes, 1, legal)
        lines = [best]
        if (count := min(settings.multipv, len(legal))) > 1:
            lines = await self._search(position, settings.line_nodes, count, legal)
        return Label(move_code(best.move), best.cp, tuple((move_code(line.move), line.cp) for line in lines))

    async def _search(self, position: str, nodes: int, count: int, legal: list[str]) -> list[EngineLine]:
        """Return the best lines of a search, at least one. Raises _FailedError."""
        client = self._client
        assert client is not None
        try:
            async with asyncio.timeout(self._settings.patience_s):
                if count != self._multipv:
                    # In one write with the search, because each write wakes the engine.
                    position = f"setoption name MultiPV value {count}\n{position}"
                    self._multipv = count
                output = await client.search_output(position, f"go nodes {nodes} depth {DEPTH_LIMIT}")
        except TimeoutError:
            raise _FailedError(f"no answer within {self._settings.patience_s:g} s") from None
        except UciError as error:
            raise _FailedError(str(error)) from None
        self.searches += 1
        lines = parse_lines(output, count)
        if not lines:
            raise _FailedError("it printed no `info … score` line")
        known = set(legal)
        for line in lines:
            if line.move not in known:
                raise _FailedError(f"it says {line.move:.10}, which is not legal")
        return lines[:count]

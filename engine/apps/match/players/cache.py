# SPDX-License-Identifier: GPL-3.0-or-later
"""The cache of a match's players: one of each per concurrent game, reused for all games."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from engine.apps.match.config import MatchConfig, PlayerConfig
from engine.apps.match.players.player import EnginePlayer, MatchPlayer, PlayerError
from engine.apps.match.players.program import ProgramPlayer
from engine.options import Options
from protocol.common.memory import process_memory

if TYPE_CHECKING:
    from engine.search.pool import SearchPool

START_ATTEMPTS = 3
"""Maximum restarts of a program that ran before; then the match fails."""

CACHES_MB = 512
"""Megabytes of evaluation cache for all players of this engine together, if the options have the default."""

TREES_SHARE = 0.5
"""Maximum share of the free memory for all trees, if the options have the default."""


class PlayerCache:
    """Lease players. Only the event loop may use it."""

    def __init__(self, config: MatchConfig, pool: SearchPool | None, concurrency: int) -> None:
        self._config = config
        self._pool = pool
        self._idle: list[list[MatchPlayer]] = [[] for _ in config.players]
        self._all: list[MatchPlayer] = []
        trees = concurrency * sum(not player.is_program for player in config.players)
        self._players = [_with_memory(player, trees) for player in config.players]

    async def check(self) -> None:
        """Start one of each, to detect errors before the first game. Raises PlayerError."""
        for index in range(len(self._players)):
            player = await self._taken(index, attempts=1)
            if isinstance(player, EnginePlayer):
                await player.check()
            elif (
                self._config.chess960
                and isinstance(player, ProgramPlayer)
                and not player.supports("UCI_Chess960")
            ):
                raise PlayerError(
                    f"{player.config.name} does not play Chess960: it has no option UCI_Chess960"
                )
            self.release(index, player)

    async def take(self, index: int) -> MatchPlayer:
        """Return a ready player, started if necessary. Raises PlayerError if it does not start."""
        return await self._taken(index, START_ATTEMPTS)

    def release(self, index: int, player: MatchPlayer) -> None:
        """Return a player, dead or alive."""
        self._idle[index].append(player)

    async def close(self) -> None:
        """Stop all players. Idempotent."""
        players, self._all = self._all, []
        self._idle = [[] for _ in self._idle]
        await asyncio.gather(*(player.close() for player in players))

    async def _taken(self, index: int, attempts: int) -> MatchPlayer:
        idle = self._idle[index]
        player = idle.pop() if idle else self._made(index)
        for attempt in range(1, attempts + 1):
            if player.alive:
                break
            try:
                await player.start()
            except PlayerError:
                if attempt == attempts:
                    self.release(index, player)
                    raise
                await asyncio.sleep(0.2 * attempt)
        return player

    def _made(self, index: int) -> MatchPlayer:
        config = self._players[index]
        player: MatchPlayer
        if config.is_program:
            player = ProgramPlayer(config, chess960=self._config.chess960)
        else:
            assert self._pool is not None
            player = EnginePlayer(config, self._pool)
        self._all.append(player)
        return player


def suggested_concurrency(config: MatchConfig, pool: SearchPool | None) -> int:
    """Return the best number of concurrent games: enough for the evaluator's best batch, but with programs at
    most as many as there are CPU cores for. It is one if this engine plays with a time limit, because
    concurrent games would take each other's time.

    Waits for the evaluator. Raises PlayerError if there is none.
    """
    from engine.evaluation.errors import NoEvaluatorError

    timed = any(player.time.is_timed for player in config.players)
    if timed and not all(player.is_program for player in config.players):
        return 1
    bounds = [len(config.schedule)]
    programs = [player for player in config.players if player.is_program]
    if programs:
        threads = max(_threads(player) for player in programs)
        bounds.append(max(1, (os.cpu_count() or 1) // threads))
    for player in config.players:
        if not player.is_program and pool is not None:
            try:
                bounds.append(pool.recommended_games(player.options))
            except NoEvaluatorError as error:
                raise PlayerError(f"{player.name}: {error}") from None
    return max(1, min(bounds))


def _threads(player: PlayerConfig) -> int:
    for name, value in player.uci_options.items():
        if name.lower() == "threads" and str(value).isdigit():
            return max(1, int(str(value)))
    return 1


def _with_memory(player: PlayerConfig, trees: int) -> PlayerConfig:
    """Return the player with a share of the memory, if its options have the default."""
    if player.is_program:
        return player
    options, default = player.options, Options()
    if options.hash == default.hash:
        options = options.changed(hash=max(1, min(default.hash, CACHES_MB // max(1, trees))))
    if options.tree_memory == default.tree_memory:
        free_mb = min(psutil.virtual_memory().available, process_memory()) * TREES_SHARE / 2**20
        share = int(free_mb / max(1, trees))
        options = options.changed(tree_memory=max(16, min(default.tree_memory, share)))
    return replace(player, options=options)

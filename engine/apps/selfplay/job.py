# SPDX-License-Identifier: GPL-3.0-or-later
"""The executor of self-play's games in this process, on one search pool."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from engine.apps.games.openings import Opening
from engine.apps.selfplay.archive import FinishedGame
from engine.apps.selfplay.config import SelfPlayConfig
from engine.apps.selfplay.game import play_game
from engine.options import Options
from engine.search.pool import SearchPool
from engine.workers.executor import LocalExecutor, Log, WorkerContext


@dataclass(frozen=True, slots=True)
class SelfPlayJob:
    """Games of self-play: a GameJob. openings: game n gets entry n modulo their number."""

    config: SelfPlayConfig
    openings: tuple[Opening, ...]

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.config.options,)

    def games_at_once(self, pool: SearchPool | None) -> int:
        assert pool is not None
        games = self.config.concurrency or pool.recommended_games(self.config.options)
        return min(games, self.config.games or games)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> SelfPlayExecutor:
        config = replace(self.config, options=context.options(self.config.options))
        return SelfPlayExecutor(replace(self, config=config), pool or context.search_pool(log))


class SelfPlayExecutor(LocalExecutor[FinishedGame, SelfPlayJob]):
    """Plays games in this process."""

    pool: SearchPool

    async def start(self) -> int:
        """Wait for the evaluator."""
        return await asyncio.to_thread(self.pool.recommended_games, self.job.config.options)

    async def play_game(self, number: int) -> FinishedGame:
        opening, config = self.job.openings[number % len(self.job.openings)], self.job.config
        playing = self.pool.drive(play_game(number, opening, config, self.pool))
        return await asyncio.to_thread(FinishedGame.of, await asyncio.wrap_future(playing), config)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The executor of self-play's games in this process, on one search pool."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.evaluation.errors import NoEvaluatorError
from engine.games.openings import Opening
from engine.options import Options
from engine.pool.pool import PoolStatistics, SearchPool
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame, play_game
from engine.workers.executor import ExecutorError, Log, WorkerContext, play_together


@dataclass(frozen=True, slots=True)
class SelfPlayJob:
    """Games of self-play: a GameJob. openings: game n gets entry n modulo their number."""

    config: SelfPlayConfig
    openings: tuple[Opening, ...]

    @property
    def networks(self) -> tuple[str, ...]:
        weights = self.config.options.weights
        return (weights,) if weights else ()

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.config.options,)

    def games_at_once(self, pool: SearchPool | None) -> int:
        assert pool is not None
        games = self.config.concurrency or pool.recommended_games(self.config.options)
        return min(games, self.config.games or games)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> SelfPlayExecutor:
        config = replace(self.config, options=context.options(self.config.options))
        return SelfPlayExecutor(config, self.openings, pool or context.search_pool(log))


class SelfPlayExecutor:
    """An executor in this process, with a search pool."""

    games_per_task = 1

    def __init__(self, config: SelfPlayConfig, openings: Sequence[Opening], pool: SearchPool) -> None:
        """pool: closed with the executor."""
        self._config = config
        self._openings = openings
        self._pool = pool

    async def open(self) -> int:
        """Wait for the evaluator, and return the best number of concurrent games. Raises ExecutorError."""
        try:
            return await asyncio.to_thread(self._pool.recommended_games, self._config.options)
        except NoEvaluatorError as error:
            raise ExecutorError(str(error)) from None

    async def play(self, numbers: Sequence[int]) -> list[PlayedGame]:
        """Play the games with these numbers concurrently. Raises ExecutorError."""
        try:
            return await play_together(self._play(number) for number in numbers)
        except NoEvaluatorError as error:
            raise ExecutorError(str(error)) from None

    def statistics(self) -> PoolStatistics:
        return self._pool.statistics()

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.close)

    async def _play(self, number: int) -> PlayedGame:
        opening = self._openings[number % len(self._openings)]
        return await play_game(number, opening, self._config, self._pool)

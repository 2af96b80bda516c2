"""Where games are played: in this process, on one search pool. The cluster offers the same interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.evaluator_process import NoEvaluatorError
from engine.match.openings import Opening
from engine.pool import PoolStatistics, SearchPool
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame, play_game


class SelfPlayError(RuntimeError):
    """Self-play cannot go on. What was played is kept. The message says why."""


class Place(Protocol):
    """Plays games, several at once. Belongs to the event loop."""

    async def open(self) -> int:
        """Get ready; returns how many games at once are best. Raises SelfPlayError."""
        ...

    async def play(self, number: int) -> PlayedGame:
        """Play the game of a number. Raises SelfPlayError."""
        ...

    def statistics(self) -> PoolStatistics:
        """What was asked of evaluators so far."""
        ...

    async def close(self) -> None:
        """End the games under way and the evaluators that were started."""
        ...


class LocalPlace:
    """Games in this process."""

    def __init__(
        self, config: SelfPlayConfig, openings: Sequence[Opening], log: Callable[[str], None]
    ) -> None:
        self._config = config
        self._openings = openings
        self._pool = SearchPool(log=log)

    async def open(self) -> int:
        try:
            return await asyncio.to_thread(self._pool.recommended_games, self._config.options)
        except NoEvaluatorError as error:
            raise SelfPlayError(str(error)) from None

    async def play(self, number: int) -> PlayedGame:
        opening = self._openings[number % len(self._openings)]
        try:
            return await play_game(number, opening, self._config, self._pool)
        except NoEvaluatorError as error:
            raise SelfPlayError(str(error)) from None

    def statistics(self) -> PoolStatistics:
        return self._pool.statistics()

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.close)

"""Plays games of self-play in this process, on one search pool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.evaluator_process import NoEvaluatorError
from engine.match.openings import Opening
from engine.match.place import Log, PlaceError, together
from engine.pool import PoolStatistics, SearchPool
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame, play_game


@dataclass(frozen=True, slots=True)
class SelfPlayJob:
    """Games of self-play. openings: for game n, number n modulo their number."""

    config: SelfPlayConfig
    openings: tuple[Opening, ...]

    @property
    def networks(self) -> tuple[str, ...]:
        weights = self.config.options.weights
        return (weights,) if weights else ()

    def place(self, log: Log, networks: Mapping[str, str]) -> SelfPlayPlace:
        options = self.config.options
        options = options.changed(weights=networks.get(options.weights, options.weights))
        return SelfPlayPlace(replace(self.config, options=options), self.openings, log)


class SelfPlayPlace:
    """A search pool and the games on it."""

    games_per_task = 1

    def __init__(self, config: SelfPlayConfig, openings: Sequence[Opening], log: Log) -> None:
        self._config = config
        self._openings = openings
        self._pool = SearchPool(log=log)

    async def open(self) -> int:
        try:
            return await asyncio.to_thread(self._pool.recommended_games, self._config.options)
        except NoEvaluatorError as error:
            raise PlaceError(str(error)) from None

    async def play(self, numbers: Sequence[int]) -> list[PlayedGame]:
        try:
            return await together(self._play(number) for number in numbers)
        except NoEvaluatorError as error:
            raise PlaceError(str(error)) from None

    def statistics(self) -> PoolStatistics:
        return self._pool.statistics()

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.close)

    async def _play(self, number: int) -> PlayedGame:
        opening = self._openings[number % len(self._openings)]
        return await play_game(number, opening, self._config, self._pool)

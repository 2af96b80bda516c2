"""Plays a match's games in this process: the players, and the games between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.games.openings import Opening
from engine.games.record import GameRecord
from engine.match.adjudication import open_tablebases
from engine.match.config import MatchConfig
from engine.match.game import GameRules, play_game
from engine.match.players.cache import PlayerStock, evaluators_of, suggested_concurrency
from engine.match.players.player import Player
from engine.options import Options
from engine.workers.executor import Log, Site, together

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics, SearchPool


@dataclass(frozen=True, slots=True)
class MatchJob:
    """The games of a match. openings: one for each round of the schedule."""

    config: MatchConfig
    openings: tuple[Opening, ...]

    @property
    def networks(self) -> tuple[str, ...]:
        weights = (player.options.weights for player in self.config.players if not player.is_program)
        return tuple(dict.fromkeys(path for path in weights if path))

    @property
    def engines(self) -> tuple[Options, ...]:
        return tuple(player.options for player in self.config.players if not player.is_program)

    def games_at_once(self, pool: SearchPool | None) -> int:
        return _games_at_once(self.config, pool)

    def place(self, log: Log, site: Site) -> MatchPlace:
        players = tuple(
            replace(player, options=site.options(player.options)) for player in self.config.players
        )
        config = replace(self.config, players=players)
        return MatchPlace(config, self.openings, log, make_pool=site.search_pool)


class MatchPlace:
    """Players on one search pool, programs, and the games between them."""

    games_per_task = 1

    def __init__(
        self,
        config: MatchConfig,
        openings: Sequence[Opening],
        log: Log,
        *,
        make_pool: Callable[[Log], SearchPool],
    ) -> None:
        """make_pool: opens the search pool, if a player needs one."""
        self._config = config
        self._make_pool = make_pool
        self._openings = openings
        self._log = log
        self._resources = ExitStack()
        self._pool: SearchPool | None = None
        self._stock: PlayerStock | None = None
        self._rules: GameRules | None = None
        self._moves = 0

    async def open(self) -> int:
        """Also raises PlayerError and TablebaseError."""
        config = self._config
        tablebases = self._resources.enter_context(open_tablebases(config.adjudication.tablebase))
        self._rules = GameRules(
            config.adjudication,
            tablebases,
            config.chess960,
            config.time_margin_ms,
            config.stall_seconds,
            self._count_move,
        )
        if evaluators_of(config.players):
            self._pool = self._make_pool(self._log)
        concurrency = await asyncio.to_thread(_games_at_once, config, self._pool)
        self._stock = PlayerStock(config, self._pool, concurrency)
        await self._stock.check()
        return concurrency

    async def play(self, numbers: Sequence[int]) -> list[GameRecord]:
        """Also raises PlayerError."""
        return await together(self._play(number) for number in numbers)

    def statistics(self) -> PoolStatistics:
        from engine.pool.pool import PoolStatistics

        asked = self._pool.statistics() if self._pool is not None else PoolStatistics()
        return replace(asked, moves=self._moves)

    def _count_move(self) -> None:
        self._moves += 1

    async def close(self) -> None:
        if self._stock is not None:
            await self._stock.close()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)
        self._resources.close()

    async def _play(self, number: int) -> GameRecord:
        assert self._stock is not None and self._rules is not None
        stock, scheduled = self._stock, self._config.schedule[number]
        taken: list[tuple[int, Player]] = []
        try:
            for index in (scheduled.white, scheduled.black):
                taken.append((index, await stock.take(index)))
            opening = self._openings[scheduled.round]
            return await play_game(scheduled, opening, taken[0][1], taken[1][1], self._rules)
        finally:
            for index, player in taken:
                stock.give_back(index, player)


def _games_at_once(config: MatchConfig, pool: SearchPool | None) -> int:
    return min(config.concurrency or suggested_concurrency(config, pool), len(config.schedule))

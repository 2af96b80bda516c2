# SPDX-License-Identifier: GPL-3.0-or-later
"""The executor of a match's games in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.games.openings import Opening, read_openings
from engine.games.record import GameRecord
from engine.match.adjudication import open_tablebases
from engine.match.config import MatchConfig
from engine.match.game import GameRules, play_game
from engine.match.players.cache import PlayerCache, suggested_concurrency
from engine.match.players.player import Player
from engine.options import Options
from engine.workers.executor import Log, WorkerContext, play_together

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics, SearchPool


Prepare = Callable[[int, int, Player], None]
"""Prepare a player for a game. Arguments: number of the game, number of the player, the player."""


def unchanged(number: int, index: int, player: Player) -> None:
    """Do nothing: the players of a match are the same in all games."""


@dataclass(frozen=True, slots=True)
class MatchJob:
    """The games of a match: a GameJob.

    openings: one per round of the schedule. prepare: a function of a module, as other processes call it too.
    """

    config: MatchConfig
    openings: tuple[Opening, ...]
    prepare: Prepare = unchanged

    @classmethod
    async def read(
        cls, config: MatchConfig, report: Callable[[str], None], prepare: Prepare = unchanged
    ) -> MatchJob:
        """Read the openings of a match. report: receives warnings. Raises OpeningError."""
        openings = await asyncio.to_thread(
            read_openings,
            config.openings,
            config.schedule.rounds,
            seed=config.seed,
            chess960=config.chess960,
            report=report,
        )
        return cls(config, tuple(openings), prepare)

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(options.weights for options in self.engines if options.weights))

    @property
    def engines(self) -> tuple[Options, ...]:
        return tuple(player.options for player in self.config.players if not player.is_program)

    def games_at_once(self, pool: SearchPool | None) -> int:
        return _games_at_once(self.config, pool)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> MatchExecutor:
        if pool is None and self.engines:
            pool = context.search_pool(log)
        players = tuple(
            replace(player, options=context.options(player.options)) for player in self.config.players
        )
        return MatchExecutor(replace(self.config, players=players), self.openings, pool, self.prepare)


class MatchExecutor:
    """An executor in this process, with engine players on one search pool, and programs."""

    games_per_task = 1

    def __init__(
        self,
        config: MatchConfig,
        openings: Sequence[Opening],
        pool: SearchPool | None,
        prepare: Prepare = unchanged,
    ) -> None:
        """pool: for players of this engine; closed with the executor."""
        self._prepare = prepare
        self._config = config
        self._openings = openings
        self._pool = pool
        self._resources = ExitStack()
        self._players: PlayerCache | None = None
        self._rules: GameRules | None = None
        self._moves = 0

    async def open(self) -> int:
        """Start one player of each kind, and return the best number of concurrent games. Raises PlayerError
        and TablebaseError."""
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
        concurrency = await asyncio.to_thread(_games_at_once, config, self._pool)
        self._players = PlayerCache(config, self._pool, concurrency)
        await self._players.check()
        return concurrency

    async def play(self, numbers: Sequence[int]) -> list[GameRecord]:
        """Play the games with these numbers concurrently. Raises PlayerError."""
        return await play_together(self._play(number) for number in numbers)

    def statistics(self) -> PoolStatistics:
        from engine.pool.pool import PoolStatistics

        asked = self._pool.statistics() if self._pool is not None else PoolStatistics()
        return replace(asked, moves=self._moves)

    async def close(self) -> None:
        if self._players is not None:
            await self._players.close()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)
        self._resources.close()

    def _count_move(self) -> None:
        self._moves += 1

    async def _play(self, number: int) -> GameRecord:
        assert self._players is not None and self._rules is not None
        players, scheduled = self._players, self._config.schedule[number]
        taken: list[tuple[int, Player]] = []
        try:
            for index in (scheduled.white, scheduled.black):
                taken.append((index, await players.take(index)))
                self._prepare(number, *taken[-1])
            opening = self._openings[scheduled.round]
            return await play_game(scheduled, opening, taken[0][1], taken[1][1], self._rules)
        finally:
            for index, player in taken:
                players.give_back(index, player)


def _games_at_once(config: MatchConfig, pool: SearchPool | None) -> int:
    return min(config.concurrency or suggested_concurrency(config, pool), len(config.schedule))

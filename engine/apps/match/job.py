# SPDX-License-Identifier: GPL-3.0-or-later
"""The executor of a match's games in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.apps.games.openings import Opening, read_openings
from engine.apps.games.record import GameRecord
from engine.apps.match.adjudication import open_tablebases
from engine.apps.match.config import MatchConfig
from engine.apps.match.game import GameRules, play_game
from engine.apps.match.players.cache import PlayerCache, suggested_concurrency
from engine.apps.match.players.player import MatchPlayer
from engine.options import Options
from engine.workers.executor import LocalExecutor, Log, WorkerContext

if TYPE_CHECKING:
    from engine.search.pool import PoolStatistics, SearchPool


Prepare = Callable[[int, int, MatchPlayer], None]
"""Prepare a player for a game. Arguments: number of the game, number of the player, the player."""


@dataclass(frozen=True, slots=True)
class MatchJob:
    """The games of a match: a GameJob.

    openings: one per round of the schedule. prepare: a function of a module, as other processes call it too.
    """

    config: MatchConfig
    openings: tuple[Opening, ...]
    prepare: Prepare | None = None

    @classmethod
    async def read(
        cls, config: MatchConfig, report: Callable[[str], None], prepare: Prepare | None = None
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
    def engines(self) -> tuple[Options, ...]:
        return tuple(player.options for player in self.config.players if not player.is_program)

    def games_at_once(self, pool: SearchPool | None) -> int:
        wanted = self.config.concurrency or suggested_concurrency(self.config, pool)
        return min(wanted, len(self.config.schedule))

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> MatchExecutor:
        if pool is None and self.engines:
            pool = context.search_pool(log)
        players = tuple(
            replace(player, options=context.options(player.options)) for player in self.config.players
        )
        return MatchExecutor(replace(self, config=replace(self.config, players=players)), pool)


class MatchExecutor(LocalExecutor[GameRecord, MatchJob]):
    """Plays games in this process, with engine players on one search pool, and programs."""

    def __init__(self, job: MatchJob, pool: SearchPool | None) -> None:
        super().__init__(job, pool)
        self._resources = ExitStack()
        self._players: PlayerCache | None = None
        self._rules: GameRules | None = None
        self._moves = 0

    async def start(self) -> int:
        """Start one player of each kind. Raises PlayerError and TablebaseError."""
        config = self.job.config
        tablebases = self._resources.enter_context(open_tablebases(config.adjudication.tablebase))
        self._rules = GameRules(
            config.adjudication,
            tablebases,
            config.chess960,
            config.time_margin_ms,
            config.stall_seconds,
            self._count_move,
        )
        concurrency = await asyncio.to_thread(self.job.games_at_once, self.pool)
        self._players = PlayerCache(config, self.pool, concurrency)
        await self._players.check()
        return concurrency

    def statistics(self) -> PoolStatistics:
        return replace(super().statistics(), moves=self._moves)

    async def close(self) -> None:
        if self._players is not None:
            await self._players.close()
        await super().close()
        self._resources.close()

    def _count_move(self) -> None:
        self._moves += 1

    async def play_game(self, number: int) -> GameRecord:
        """Raises PlayerError."""
        assert self._players is not None and self._rules is not None
        players, scheduled = self._players, self.job.config.schedule[number]
        taken: list[tuple[int, MatchPlayer]] = []
        try:
            for index in (scheduled.white, scheduled.black):
                taken.append((index, await players.take(index)))
                if self.job.prepare is not None:
                    self.job.prepare(number, *taken[-1])
            opening = self.job.openings[scheduled.round]
            return await play_game(scheduled, opening, taken[0][1], taken[1][1], self._rules)
        finally:
            for index, player in taken:
                players.release(index, player)

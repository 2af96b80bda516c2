# SPDX-License-Identifier: GPL-3.0-or-later
"""Games whose players have the values of their iteration, on any executor of a match's games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.games.record import GameRecord
from engine.match.players.player import EnginePlayer, Player
from engine.tune.progress import Progress
from engine.workers.executor import GameExecutor

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics

Changes = Mapping[int, Mapping[str, float]]
"""Values of options by player number."""


class TunedGame(int):
    """The number of a game, with the values of its players for the process that plays it."""

    changes: Changes

    def __new__(cls, number: int, changes: Changes) -> TunedGame:
        game = super().__new__(cls, number)
        game.changes = changes
        return game

    def __reduce__(self) -> tuple[type[TunedGame], tuple[int, Changes]]:
        return TunedGame, (int(self), self.changes)


def use_values(number: int, index: int, player: Player) -> None:
    """Set a player's values of a TunedGame: the `prepare` of a MatchJob."""
    if isinstance(number, TunedGame) and isinstance(player, EnginePlayer) and index in number.changes:
        player.use(player.config.options.changed(**number.changes[index]))


class TuningExecutor:
    """A GameExecutor that adds the current values to each game, and lets another executor play it."""

    def __init__(self, executor: GameExecutor[GameRecord], progress: Progress) -> None:
        self.games_per_task = executor.games_per_task
        self._executor = executor
        self._progress = progress

    async def open(self) -> int:
        return await self._executor.open()

    async def play(self, numbers: Sequence[int]) -> list[GameRecord]:
        """Play the games with these numbers, with the values of this moment if their iteration starts."""
        return await self._executor.play(
            [TunedGame(number, self._progress.changes(number)) for number in numbers]
        )

    def statistics(self) -> PoolStatistics:
        return self._executor.statistics()

    async def close(self) -> None:
        await self._executor.close()

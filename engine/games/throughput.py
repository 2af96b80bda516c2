# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast games are played, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.pool.pool import PoolStatistics


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast a run plays; games of earlier runs are not counted.

    seconds: since the games began. concurrency: games at once. games: finished. pool: what all games, those
    in flight included, asked of the evaluators.
    """

    seconds: float = 0.0
    concurrency: int = 0
    games: int = 0
    pool: PoolStatistics = field(default_factory=PoolStatistics)

    @property
    def games_per_hour(self) -> float:
        return 3600 * self.games / self.seconds if self.seconds > 0 else 0.0

    @property
    def moves_per_second(self) -> float:
        return self.pool.moves / self.seconds if self.seconds > 0 else 0.0

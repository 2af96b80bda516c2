# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of playing games, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.search.pool import PoolStatistics


@dataclass(frozen=True, slots=True)
class Throughput:
    """The speed of a run, without games of earlier runs.

    seconds: since the start of the games. concurrency: concurrent games. games: finished. pool: evaluations
    of all games, running ones included.
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

"""A job without engines: its place does what a test has written down. Worker processes import it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.options import Options
from engine.pool.pool import PoolStatistics, SearchPool
from engine.workers.executor import Log, PlaceError, Site


@dataclass(frozen=True, slots=True)
class ScriptedJob:
    """Games that are their numbers and the process that played them.

    deaths: how many games end the process instead; folder: where those are counted. refuses: what opening a
    place, or playing a game, raises.
    """

    folder: str
    deaths: int = 0
    refuses_to_open: str = ""
    refuses_to_play: str = ""

    @property
    def networks(self) -> tuple[str, ...]:
        return ()

    @property
    def engines(self) -> tuple[Options, ...]:
        return ()

    def games_at_once(self, pool: SearchPool | None) -> int:
        return 8

    def place(self, log: Log, site: Site) -> ScriptedPlace:
        return ScriptedPlace(self, log, site)


class ScriptedPlace:
    games_per_task = 1

    def __init__(self, job: ScriptedJob, log: Log, site: Site) -> None:
        self._job = job
        self._log = log
        self._site = site
        self._played = 0

    async def open(self) -> int:
        if self._job.refuses_to_open:
            raise PlaceError(self._job.refuses_to_open)
        print("what a library prints does not come between the answers")
        return 8

    async def play(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        if self._job.refuses_to_play:
            raise PlaceError(self._job.refuses_to_play)
        for death in range(self._job.deaths):
            try:
                Path(self._job.folder, f"death {death}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os._exit(3)
        self._played += len(numbers)
        self._log(f"played {numbers}, one of {self._site.processes} processes")
        return [(number, os.getpid()) for number in numbers]

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(
            searches=self._played,
            evaluations=100 * self._played,
            seconds=1.0 if self._played else 0.0,
            mean_batch=20.0,
            moves=3 * self._played,
        )

    async def close(self) -> None:
        pass

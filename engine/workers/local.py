"""Games on this machine: in this process, or in several where one cannot keep the evaluators busy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Generic

from engine.evaluation.errors import NoEvaluatorError
from engine.workers.executor import Game, Job, Log, MakePlace, Place, Site
from engine.workers.processes import ProcessesPlace

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics, SearchPool
    from protocol.messages import Curve

POSITIONS_PER_PROCESS = 60_000
"""Positions per second that one process feeds an evaluator with, as one of many: 64 games with the shipped
network on an H200, which computes 725,000, came to 652,000 in 12 processes and 632,000 in 8 at 4,000 nodes a
move. (One alone came to 111,000.)"""


def machine_place(workers: int) -> MakePlace[Any]:
    """Makes places on this machine. workers: processes, 0 is as many as the evaluators ask for."""

    def make(job: Job[Game], log: Log) -> Place[Game]:
        return MachinePlace(workers, job, log)

    return make


class MachinePlace(Generic[Game]):
    """This machine. How many processes play is decided when it is opened."""

    games_per_task = 1

    def __init__(self, workers: int, job: Job[Game], log: Log) -> None:
        self._workers = workers
        self._job = job
        self._log = log
        self._place: Place[Game] | None = None

    async def open(self) -> int:
        """Also raises what players raise."""
        from engine.pool.pool import SearchPool

        pool = SearchPool(log=self._log) if self._job.engines else None
        try:
            workers = await asyncio.to_thread(self._count, pool)
        except BaseException:
            if pool is not None:
                await asyncio.to_thread(pool.close)
            raise
        if workers == 1:
            self._place = self._job.place(self._log, Site(pool=pool))
        else:
            self._log(f"games are played by {workers} processes")
            self._place = ProcessesPlace(workers, self._job, self._log, pool)
        return await self._place.open()

    async def play(self, numbers: Sequence[int]) -> list[Game]:
        assert self._place is not None
        return await self._place.play(numbers)

    def statistics(self) -> PoolStatistics:
        from engine.pool.pool import PoolStatistics

        return self._place.statistics() if self._place is not None else PoolStatistics()

    async def close(self) -> None:
        if self._place is not None:
            await self._place.close()

    def _count(self, pool: SearchPool | None) -> int:
        """How many processes are to play."""
        try:
            games = self._job.games_at_once(pool)
            if self._workers:
                return min(self._workers, games)
            if pool is None:
                return 1
            links = dict.fromkeys(pool.link(options) for options in self._job.engines)
            clients = [link.wait() for link in links]
        except NoEvaluatorError:
            return 1  # It says so itself.
        curves = [client.curve for client in clients if client is not None]
        return workers_for(curves, games, cores())


def workers_for(curves: Iterable[Curve], games: int, cores: int) -> int:
    """How many processes keep evaluators with these curves busy with so many games at once.

    A quarter of the cores is left to the evaluators, and a process that plays one game alone gains nothing.
    """
    from protocol.messages import best_rate

    rate = sum(map(best_rate, curves))
    return max(1, min(ceil(rate / POSITIONS_PER_PROCESS), cores * 3 // 4, games // 2))


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

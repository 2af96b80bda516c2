# SPDX-License-Identifier: GPL-3.0-or-later
"""Distribution of games to workers.

A game goes to the worker with the lowest load. Games of a lost worker are played again on others. Only
returned games count, so no game is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic

from engine.workers.executor import ExecutorError, FailedGame, Game, Log, WorkerLostError
from engine.workers.supervisor import Supervisor, Worker

if TYPE_CHECKING:
    from engine.search.pool import PoolStatistics


class GameSupervisor(Supervisor, Generic[Game]):
    """An executor that lets workers play its games."""

    games_per_task = 1

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._all_workers: list[Worker] = []

    def worker_ready(self, worker: Worker) -> None:
        super().worker_ready(worker)
        self._all_workers.append(worker)

    async def play(self, numbers: Sequence[int]) -> list[Game | FailedGame]:
        """Play the games with these numbers. Raises ExecutorError if no slot is left."""
        while True:
            worker = await self._least_loaded()
            worker.load += len(numbers)
            try:
                games: list[Game | FailedGame] = await worker.handle.call("play", list(numbers))
                worker.slot.failures = 0
                await self.ask_report(worker)  # The statistics displayed with a game include it.
                return games
            except WorkerLostError as error:
                await self.worker_lost(worker, str(error))
            finally:
                worker.load -= len(numbers)

    def statistics(self) -> PoolStatistics:
        """Return the reported totals of all workers, including lost ones."""
        from engine.search.pool import PoolStatistics

        reports = [(worker, worker.statistics) for worker in self._all_workers if worker.statistics]
        began = min((worker.reported_at - s.seconds for worker, s in reports if s.seconds), default=0.0)
        latest = max((worker.reported_at for worker, s in reports if s.seconds), default=0.0)
        evaluations = sum(s.evaluations for _, s in reports)
        batches = sum(s.evaluations / s.mean_batch for _, s in reports if s.mean_batch)
        return PoolStatistics(
            searches=sum(s.searches for _, s in reports),
            evaluations=evaluations,
            seconds=latest - began,
            mean_batch=evaluations / batches if batches else 0.0,
            moves=sum(s.moves for _, s in reports),
        )

    async def _least_loaded(self) -> Worker:
        """Return the worker with the lowest load; wait while any is starting. Raises ExecutorError."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.workers() or not self.starting)
        workers = self.workers()
        if not workers:
            raise ExecutorError(self.exhausted())
        return min(workers, key=lambda worker: (worker.load + 1) / max(1, worker.capacity))

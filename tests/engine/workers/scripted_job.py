# SPDX-License-Identifier: GPL-3.0-or-later
"""A job without engines: its executor does what a test has written down. Worker processes import it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.options import Options
from engine.search.pool import PoolStatistics, SearchPool
from engine.workers.executor import ExecutorError, Log, WorkerContext


@dataclass(frozen=True, slots=True)
class ScriptedJob:
    """Games that are their numbers and the process that played them.

    deaths: how many games end the process instead; folder: where those are counted. refuses_to_open,
    refuses_to_play: what opening the executor, or playing a game, raises. waits: games never
    end.
    """

    folder: str
    deaths: int = 0
    refuses_to_open: str = ""
    refuses_to_play: str = ""
    waits: bool = False

    @property
    def engines(self) -> tuple[Options, ...]:
        return ()

    def games_at_once(self, pool: SearchPool | None) -> int:
        return 8

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> ScriptedExecutor:
        return ScriptedExecutor(self, log, context)


class ScriptedExecutor:
    games_per_task = 1

    def __init__(self, job: ScriptedJob, log: Log, context: WorkerContext) -> None:
        self._job = job
        self._log = log
        self._context = context
        self._played = 0

    async def open(self) -> int:
        if self._job.refuses_to_open:
            raise ExecutorError(self._job.refuses_to_open)
        print("what a library prints does not come between the answers")
        return 8

    async def play(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        if self._job.waits:
            await asyncio.Event().wait()
        if self._job.refuses_to_play:
            raise ExecutorError(self._job.refuses_to_play)
        for death in range(self._job.deaths):
            try:
                Path(self._job.folder, f"death {death}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os._exit(3)
        self._played += len(numbers)
        self._log(f"played {numbers}, one of {self._context.processes} processes")
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

# SPDX-License-Identifier: GPL-3.0-or-later
"""The games of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.workers.executor import GameExecutor, GameJob, WorkerContext, WorkerReport


class GameWorker:
    """Play the games that the supervisor requests, on an executor in this process.

    Only the event loop may use it. Errors: those of executors and players.
    """

    def __init__(self, job: GameJob[Any], context: WorkerContext) -> None:
        self.job = job
        self.context = context
        self._messages: list[str] = []
        self._executor: GameExecutor[Any] | None = None
        self._playing: set[asyncio.Task[Sequence[Any]]] = set()

    async def open(self) -> int:
        """Prepare, and return the best number of concurrent games."""
        self._executor = self.job.executor(self._messages.append, self.context)
        return await self._executor.open()

    async def play(self, numbers: Sequence[int]) -> Sequence[Any]:
        """Play the games with these numbers concurrently."""
        assert self._executor is not None
        task = asyncio.ensure_future(self._executor.play(numbers))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)
        return await task

    async def report(self) -> WorkerReport:
        """Statistics so far, and the messages since the last report."""
        assert self._executor is not None
        messages = self._messages[:]
        del self._messages[: len(messages)]
        return self._executor.statistics(), messages

    async def close(self) -> WorkerReport:
        """Stop the running games and everything started for them, and return the last report."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        last = await self.report()
        assert self._executor is not None
        await self._executor.close()
        return last

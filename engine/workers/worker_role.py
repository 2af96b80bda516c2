# SPDX-License-Identifier: GPL-3.0-or-later
"""What a worker does for its supervisor: plays games, unless it is there for something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.workers.executor import GameExecutor, GameJob, WorkerContext, WorkerReport

Say = Callable[[Any], None]
"""Tells the other end of the connection something that it need not answer. The message can be pickled."""


class WorkerRole(Protocol):
    """What a supervisor reaches in a worker. Belongs to the worker's event loop, where alone it may `say`
    something."""

    async def open(self) -> int:
        """Get ready; returns how much at once is best here."""
        ...

    async def report(self) -> WorkerReport:
        """Statistics so far, and the messages since the last report."""
        ...

    async def close(self) -> WorkerReport:
        """End what is in flight and all that was started for it; returns the last report."""
        ...

    def hear(self, message: Any) -> None:
        """Take what the supervisor tells it."""
        ...


MakeRole = Callable[[Any, WorkerContext, Say], WorkerRole]
"""Makes a role of a job in the worker's process; can be pickled, as a class or function of a module."""


class GameWorker:
    """Plays games on an executor in this process, as its supervisor asks for them.

    Belongs to the event loop. Methods as of WorkerHandle, with the errors of executors and players.
    """

    def __init__(self, job: GameJob[Any], context: WorkerContext, _say: Say = lambda message: None) -> None:
        self.job = job
        self.context = context
        self._messages: list[str] = []
        self._executor: GameExecutor[Any] | None = None
        self._playing: set[asyncio.Task[list[Any]]] = set()

    async def open(self) -> int:
        """Get ready; returns how many games at once are best here."""
        self._executor = self.job.executor(self._messages.append, self.context)
        return await self._executor.open()

    async def play(self, numbers: Sequence[int]) -> list[Any]:
        """Play the games of these numbers at the same time."""
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
        """End the running games and all that was started for them; returns the last report."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        last = await self.report()
        assert self._executor is not None
        await self._executor.close()
        return last

    def hear(self, message: Any) -> None:
        """Take what the supervisor tells it: players of games get nothing."""

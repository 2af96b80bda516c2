"""The side of a worker that plays: a place in a process of its own, and what it has to say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.workers.executor import Job, Place, Site

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics

WorkerReport = tuple["PoolStatistics", list[str]]
"""Statistics so far, and the messages since the last report."""


class PlaceWorker:
    """Plays the games that it is told the numbers of. Belongs to its process's event loop."""

    def __init__(self, job: Job[Any], site: Site) -> None:
        self.job = job
        self.site = site
        self._notes: list[str] = []
        self._place: Place[Any] | None = None
        self._playing: set[asyncio.Task[list[Any]]] = set()

    async def open(self) -> int:
        """Get ready; returns how many games at once are best here. Raises what places and players raise."""
        self._place = self.job.place(self._notes.append, self.site)
        return await self._place.open()

    async def play(self, numbers: Sequence[int]) -> list[Any]:
        """Play games at the same time."""
        assert self._place is not None
        task = asyncio.ensure_future(self._place.play(numbers))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)
        return await task

    async def report(self) -> WorkerReport:
        """What it did and has to say."""
        assert self._place is not None
        notes = self._notes[:]
        del self._notes[: len(notes)]
        return self._place.statistics(), notes

    async def close(self) -> WorkerReport:
        """End the games under way and all that was started for them; returns the last report."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        last = await self.report()
        assert self._place is not None
        await self._place.close()
        return last


def first_line(error: BaseException) -> str:
    """What went wrong, short: an error's first line, or what kind it is."""
    return str(error).strip().partition("\n")[0] or type(error).__name__

"""Where games are played: in this process, or on the nodes of a cluster. Matches and self-play ask a place
for their games by number and do not know which it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from engine.pool import PoolStatistics

Game = TypeVar("Game")

Log = Callable[[str], None]


class PlaceError(RuntimeError):
    """A place cannot play (any more). The message says why."""


class Place(Protocol[Game]):
    """Plays games, several at once. Belongs to the event loop.

    games_per_task: games that are best asked for together, those whose numbers divided by it are equal.
    """

    games_per_task: int

    async def open(self) -> int:
        """Get ready; returns how many games at once are best. Raises PlaceError, and what players raise."""
        ...

    async def play(self, numbers: Sequence[int]) -> list[Game]:
        """Play the games of these numbers, at the same time. Raises PlaceError."""
        ...

    def statistics(self) -> PoolStatistics:
        """What the games asked of evaluators so far."""
        ...

    async def close(self) -> None:
        """End the games under way, and all that was started for them."""
        ...


class Job(Protocol[Game]):
    """What is to be played, as data that can be sent to another machine.

    networks: paths of the network files it needs.
    """

    @property
    def networks(self) -> tuple[str, ...]: ...

    def place(self, log: Log, networks: Mapping[str, str]) -> Place[Game]:
        """A place in this process. networks: where the files are here, by their paths in `networks`; those
        that are left out are at that path."""
        ...


MakePlace = Callable[[Job[Game], Log], Place[Game]]


async def together(games: Iterable[Coroutine[Any, Any, Game]]) -> list[Game]:
    """Play games at the same time. The first failure ends the others and is raised."""
    tasks = [asyncio.ensure_future(game) for game in games]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def local_place(job: Job[Game], log: Log) -> Place[Game]:
    """A place in this process."""
    return job.place(log, {})

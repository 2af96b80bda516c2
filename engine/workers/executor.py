"""Where games are played: in this process, in several, or on the nodes of a cluster. Matches and self-play
ask a place for their games by number and do not know which it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engine.evaluation.process import EvaluatorSettings
from engine.options import Options

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics, SearchPool

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


@dataclass(frozen=True, slots=True)
class Served:
    """A network that an evaluator has loaded. network: what the evaluator calls it."""

    address: str
    network: str


@dataclass(frozen=True, slots=True)
class Site:
    """What a place finds where it is. Can be sent to another process if it has no pool.

    networks: where network files are here, by their paths in the job; those left out are at that path.
    served: networks that evaluators have loaded already, by the settings that ask for them. processes: how
    many, each with such a place, feed these evaluators. pool: opened already; the place closes it.
    """

    networks: Mapping[str, str] = field(default_factory=dict)
    served: Mapping[EvaluatorSettings, Served] = field(default_factory=dict)
    processes: int = 1
    pool: SearchPool | None = None

    def options(self, options: Options) -> Options:
        """A player's options as they are here."""
        served = self.served.get(EvaluatorSettings.of(options))
        if served is None:
            return options.changed(weights=self.networks.get(options.weights, options.weights))
        return options.changed(
            evaluator=served.address, weights=served.network, policy_head="", value_head=""
        )

    def search_pool(self, log: Log) -> SearchPool:
        """The pool to play on."""
        from engine.pool.pool import SearchPool

        return self.pool or SearchPool(log=log, pools=self.processes)


class Job(Protocol[Game]):
    """What is to be played, as data that can be sent to another machine.

    networks: paths of the network files it needs. engines: options of the players that need an evaluator.
    """

    @property
    def networks(self) -> tuple[str, ...]: ...

    @property
    def engines(self) -> tuple[Options, ...]: ...

    def games_at_once(self, pool: SearchPool | None) -> int:
        """How many are best, if nobody has said how many. Waits for the evaluators. pool: where there are
        `engines`. Raises NoEvaluatorError."""
        ...

    def place(self, log: Log, site: Site) -> Place[Game]:
        """A place in this process."""
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

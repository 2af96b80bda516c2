# SPDX-License-Identifier: GPL-3.0-or-later
"""Where games are played: in this process, in several processes, or on the nodes of a Ray cluster.

Matches and self-play ask a `GameExecutor` for their games by number and do not know which of the three it is.
What is to be played is a `GameJob`, which can be sent to another process; what it finds there is the
`WorkerContext`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engine.evaluation.connection.process import EvaluatorSettings
from engine.options import Options

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics, SearchPool
    from protocol.messages import Priority

Game = TypeVar("Game")

Log = Callable[[str], None]


class ExecutorError(RuntimeError):
    """Games cannot be played there (any more). The message says why."""


class GameExecutor(Protocol[Game]):
    """Plays games, several at once. Belongs to the event loop.

    games_per_task: games that are best asked for together, those whose numbers divided by it are equal.
    """

    games_per_task: int

    async def open(self) -> int:
        """Get ready; returns how many games at once are best. Raises ExecutorError, and what players
        raise."""
        ...

    async def play(self, numbers: Sequence[int]) -> list[Game]:
        """Play the games of these numbers at the same time. Raises ExecutorError."""
        ...

    def statistics(self) -> PoolStatistics:
        """What the games asked of evaluators so far."""
        ...

    async def close(self) -> None:
        """End the running games and all that was started for them."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedNetwork:
    """A network that an evaluator has loaded. network: its name at the evaluator."""

    address: str
    network: str


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a job finds in the process that plays it; can be sent there.

    networks: where network files are there, by their paths in the job; those left out are at that path.
    loaded: networks that evaluators have loaded already, by the settings that ask for them. processes: how
    many processes play the job on the same evaluators.
    """

    networks: Mapping[str, str] = field(default_factory=dict)
    loaded: Mapping[EvaluatorSettings, LoadedNetwork] = field(default_factory=dict)
    processes: int = 1

    def options(self, options: Options) -> Options:
        """A player's options as they are in that process."""
        loaded = self.loaded.get(EvaluatorSettings.of(options))
        if loaded is None:
            return options.changed(weights=self.networks.get(options.weights, options.weights))
        return options.changed(
            evaluator=loaded.address, weights=loaded.network, policy_head="", value_head=""
        )

    def search_pool(self, log: Log, priority: Priority = "selfplay") -> SearchPool:
        """Open the search pool of that process. priority: of its requests."""
        from engine.pool.pool import SearchPool

        return SearchPool(log=log, priority=priority, pools=self.processes)


class Job(Protocol):
    """What workers are there for, as data that can be sent to another machine.

    networks: paths of the network files it needs. engines: options of the searches that need an evaluator.
    """

    @property
    def networks(self) -> tuple[str, ...]: ...

    @property
    def engines(self) -> tuple[Options, ...]: ...


class GameJob(Job, Protocol[Game]):
    """Games to be played."""

    def games_at_once(self, pool: SearchPool | None) -> int:
        """How many games at once are best where the job's settings leave that open. Waits for the
        evaluators. pool: not None where there are `engines`. Raises NoEvaluatorError."""
        ...

    def executor(
        self, log: Log, context: WorkerContext, pool: SearchPool | None = None
    ) -> GameExecutor[Game]:
        """Plays the games in this process. pool: closed with the executor; None opens one if need be."""
        ...


MakeExecutor = Callable[[GameJob[Game], Log], Awaitable[GameExecutor[Game]]]
"""Makes the executor of a job, which is not opened yet. Raises what the job's `games_at_once` raises."""


async def play_together(games: Iterable[Coroutine[Any, Any, Game]]) -> list[Game]:
    """Play games at the same time. The first failure ends the others and is raised."""
    tasks = [asyncio.ensure_future(game) for game in games]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- workers in other processes ------------------------------------------------------------------------------


class WorkerLostError(Exception):
    """A worker is of no use any more: it is gone, or its games failed. The message says why."""


WorkerReport = tuple["PoolStatistics", list[str]]
"""A worker's statistics so far, and its messages since the last report."""


class WorkerHandle(Protocol):
    """How a supervisor reaches a worker. All but `kill` raise WorkerLostError where the worker is gone."""

    async def open(self) -> int:
        """Get the worker ready; returns how many games at once are best there."""
        ...

    async def play(self, numbers: Sequence[int]) -> list[Any]:
        """Have it play the games of these numbers."""
        ...

    async def report(self) -> WorkerReport: ...

    async def close(self) -> WorkerReport:
        """Have it end its games; returns the last report."""
        ...

    async def kill(self) -> None:
        """End it at once, whatever state it is in. Idempotent, raises nothing."""
        ...


def first_line(error: BaseException) -> str:
    """What went wrong, short: an error's first line, or what kind it is."""
    return str(error).strip().partition("\n")[0] or type(error).__name__

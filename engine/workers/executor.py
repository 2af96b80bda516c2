# SPDX-License-Identifier: GPL-3.0-or-later
"""Interfaces of executors, which play games in this process, in several, or on the nodes of a Ray cluster.

Matches and self-play request their games by number from a `GameExecutor` of any of the three kinds. A
`GameJob` describes the games, and can be sent to another process. A `WorkerContext` describes that process.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from engine.evaluation.errors import NoEvaluatorError
from engine.evaluation.link.process import EvaluatorSettings
from engine.options import Options
from protocol.common.printing import ReportedError, reason

if TYPE_CHECKING:
    from engine._core import Game as Position
    from engine.search.limits import Limits
    from engine.search.pool import PoolPlayer, PoolStatistics, SearchPool
    from engine.search.report import Report
    from protocol.wire.messages import Priority

Game = TypeVar("Game")
Played = TypeVar("Played", covariant=True)
AnyJob = TypeVar("AnyJob")

Log = Callable[[str], None]


class ExecutorError(ReportedError, RuntimeError):
    """The executor cannot play games (any more). The message gives the reason."""


class GameExecutor(Protocol[Played]):
    """Play several games concurrently. Only the event loop may use it.

    games_per_task: games to request together: those with an equal quotient of number and games_per_task.
    """

    games_per_task: int

    async def open(self) -> int:
        """Prepare, and return the best number of concurrent games. Raises ExecutorError and players'
        errors."""

    async def play(self, numbers: Sequence[int]) -> Sequence[Played | FailedGame]:
        """Play the games with these numbers concurrently. Raises ExecutorError."""

    def statistics(self) -> PoolStatistics:
        """Return the evaluations of the games so far."""

    async def close(self) -> None:
        """Stop the running games and everything that was started for them."""


@dataclass(frozen=True, slots=True)
class FailedGame:
    """A game that an error ended which nobody thought of, while the others go on."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class LoadedNetwork:
    """A network loaded by an evaluator. network: its name at the evaluator."""

    address: str
    network: str


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The environment of a job in the process that plays it. Can be pickled.

    networks: local paths of network files by their paths in the job (default: the same path). loaded:
    networks that evaluators have already loaded, by settings. processes: number of processes that play the
    job on the same evaluators.
    """

    networks: Mapping[str, str] = field(default_factory=dict)
    loaded: Mapping[EvaluatorSettings, LoadedNetwork] = field(default_factory=dict)
    processes: int = 1

    def options(self, options: Options) -> Options:
        """Return a player's options for that process."""
        loaded = self.loaded.get(EvaluatorSettings.of(options))
        if loaded is None:
            return options.changed(weights=self.networks.get(options.weights, options.weights))
        return options.changed(
            evaluator=loaded.address, weights=loaded.network, policy_head="", value_head=""
        )

    def search_pool(self, log: Log, priority: Priority = "selfplay") -> SearchPool:
        """Open a search pool in that process. priority: of its requests."""
        from engine.search.pool import SearchPool

        return SearchPool(log=log, priority=priority, pools=self.processes)


class GameJob(Protocol[Played]):
    """Games to play, as data that can be sent to another machine.

    engines: options of the searches that need an evaluator.
    """

    @property
    def engines(self) -> tuple[Options, ...]: ...

    def games_at_once(self, pool: SearchPool | None) -> int:
        """Return the best number of concurrent games if the job's settings leave it open. Waits for the
        evaluators. pool: required if there are `engines`. Raises NoEvaluatorError."""

    def executor(
        self, log: Log, context: WorkerContext, pool: SearchPool | None = None
    ) -> GameExecutor[Played]:
        """Return an executor in this process. pool: closed with it; None opens one if necessary."""


MakeExecutor = Callable[[GameJob[Game], Log], Awaitable[GameExecutor[Game]]]
"""Create an executor of a job without opening it. Raises the same as the job's `games_at_once`."""


async def play_together(games: Iterable[Coroutine[Any, Any, Game]]) -> list[Game]:
    """Play games concurrently. The first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(game) for game in games]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def searched(player: PoolPlayer, game: Position, limits: Limits, *, play: bool = False) -> Report:
    """Return the report of a player's search. A coroutine that is cancelled stops the search; then the player
    may still be in use for a moment. Raises NoEvaluatorError."""
    future = player.search(game, limits, play=play)
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        player.stop()
        raise


class LocalExecutor(ABC, Generic[Game, AnyJob]):
    """A GameExecutor in this process, with one search pool for all games.

    failures: of a game or at the start, which are raised as ExecutorError.
    """

    games_per_task = 1
    failures: tuple[type[Exception], ...] = (NoEvaluatorError,)

    def __init__(self, job: AnyJob, pool: SearchPool | None) -> None:
        """pool: closed with the executor; None if the games need no evaluator."""
        self.job = job
        self.pool = pool

    @abstractmethod
    async def start(self) -> int:
        """Prepare, and return the best number of concurrent games."""

    @abstractmethod
    async def play_game(self, number: int) -> Game:
        """Play a game."""

    async def open(self) -> int:
        """Prepare, and return the best number of concurrent games. Raises ExecutorError."""
        with self._failing():
            return await self.start()

    async def play(self, numbers: Sequence[int]) -> list[Game | FailedGame]:
        """Play the games with these numbers concurrently. Raises ExecutorError."""
        with self._failing():
            return await play_together(self._guarded(number) for number in numbers)

    async def _guarded(self, number: int) -> Game | FailedGame:
        try:
            return await self.play_game(number)
        except Exception as error:  # The other games go on, whatever it is.
            if isinstance(error, (ReportedError, *self.failures)):
                raise
            return FailedGame(number, reason(error))

    def statistics(self) -> PoolStatistics:
        from engine.search.pool import PoolStatistics

        return self.pool.statistics() if self.pool is not None else PoolStatistics()

    async def close(self) -> None:
        if self.pool is not None:
            await asyncio.to_thread(self.pool.close)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except self.failures as error:
            raise ExecutorError(str(error)) from None


# -- workers in other processes ------------------------------------------------------------------------------


class WorkerLostError(Exception):
    """A worker is unusable: it is gone, or its games failed. The message gives the reason."""


WorkerReport = tuple["PoolStatistics", list[str]]
"""A worker's statistics so far, and its messages since the last report."""


class WorkerHandle(Protocol):
    """A supervisor's interface to a worker."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker's role, and return its result. Raises WorkerLostError if it fails or
        the worker is gone."""

    async def kill(self) -> None:
        """Kill it at once, in any state. Idempotent; raises nothing."""


def first_line(error: BaseException) -> str:
    """Return an error's first line, or the name of its type."""
    return str(error).strip().partition("\n")[0] or type(error).__name__

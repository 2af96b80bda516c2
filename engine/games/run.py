# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of numbered games: many concurrently on an executor, each recorded and counted at its end. It ends
when all are played, the ledger has its result, the time is over, or the run is cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any, Generic, Literal, Protocol, TypeVar

from engine.games.throughput import Throughput
from engine.pool.pool import PoolStatistics
from engine.workers.executor import GameExecutor, GameJob, MakeExecutor
from protocol.host.files import write_atomically

SUMMARY_SECONDS = 5.0
"""Minimum time between two writes of the summary during the games."""

RunEnding = Literal["finished", "time", "interrupted"]


@dataclass(slots=True, kw_only=True)
class RunState:
    """The state of a run, for displays. resumed: games of earlier runs. playing: running games."""

    resumed: int = 0
    playing: int = 0
    throughput: Throughput = field(default_factory=Throughput)


Game = TypeVar("Game")
Entry = TypeVar("Entry")
State = TypeVar("State", bound=RunState)
_Game = TypeVar("_Game", contravariant=True)
_Entry = TypeVar("_Entry", contravariant=True)
_State = TypeVar("_State", contravariant=True)


class View(Protocol[_State, _Entry]):
    """A display of a run. The event loop calls it, so its methods must be quick."""

    def started(self, state: _State) -> None:
        """Show that the executor is ready and games start."""

    def game_over(self, state: _State, entry: _Entry) -> None:
        """Show a game that was recorded and counted."""

    def tick(self, state: _State) -> None:
        """Update the display; called once per second."""

    def note(self, text: str) -> None:
        """Show a message to the user. Any thread may call it."""


class Ledger(Protocol[_Game, Entry]):
    """The record and the counts of a run's games. summary_file: file for its state."""

    @property
    def summary_file(self) -> Path: ...

    def write(self, game: _Game) -> Entry:
        """Write a game to disk, and sync it. A dedicated thread calls it for one game at a time. Raises
        JournalError."""
        ...

    def count(self, entry: Entry) -> None:
        """Count a recorded game."""

    def over(self) -> bool:
        """Return True if the counted games are enough. Raises an error that makes more games useless."""
        ...

    def summary(self) -> Mapping[str, Any] | None:
        """Return the state as JSON data; None while there is nothing to write."""
        ...


class GameRun(Generic[Game, Entry, State]):
    """One run of numbered games. Only the event loop may use it."""

    def __init__(
        self,
        state: State,
        ledger: Ledger[Game, Entry],
        view: View[State, Entry],
        *,
        time_limit_s: float = 0.0,
    ) -> None:
        """state: updated during the run. time_limit_s: seconds of play; 0 is no limit."""
        self._state = state
        self._ledger = ledger
        self._view = view
        self._time_limit_s = time_limit_s
        self._executor: GameExecutor[Game] | None = None
        self._writer = ThreadPoolExecutor(1, "game-writer")
        self._writing: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._began = monotonic()
        self._games = 0
        self._next_summary = 0.0

    async def play(
        self,
        make_executor: MakeExecutor[Game],
        job: GameJob[Game],
        numbers: Iterable[int],
        *,
        concurrency: int,
        most: int | None = None,
    ) -> RunEnding:
        """Play the job's games with these numbers.

        concurrency: concurrent games; 0 is the executor's best number. most: upper limit of that. Raises
        ExecutorError, JournalError, and the errors of the job's players and of the ledger's `over`. Finished
        games are recorded in any case.
        """
        ending: RunEnding = "finished"
        try:
            self._executor = executor = await make_executor(job, self._view.note)
            suggested = await executor.open()
            at_once = concurrency or suggested
            if most is not None:
                at_once = min(at_once, most)
            self._began = monotonic()
            self._state.throughput = Throughput(concurrency=at_once)
            self._view.started(self._state)
            groups = _grouped(numbers, executor.games_per_task)
            ending = await self._play_groups(groups, -(-at_once // executor.games_per_task))
        except asyncio.CancelledError:
            # Ctrl-C: the games so far are the result.
            current = asyncio.current_task()
            if current is not None:
                current.uncancel()
            ending = "interrupted"
        finally:
            await asyncio.gather(*self._writing, return_exceptions=True)
            self._measure()
            if self._executor is not None:
                await self._executor.close()
            await asyncio.to_thread(self._writer.shutdown)
            self._write_summary(last=True)
        if self._failure is not None:
            raise self._failure
        return ending

    async def _play_groups(self, groups: Iterator[list[int]], at_once: int) -> RunEnding:
        """Play until no game is left, the ledger has enough, the time is over or a task fails."""
        tasks = [asyncio.create_task(self._work(groups)) for _ in range(at_once)]
        ticker = asyncio.create_task(self._tick())
        pending = set(tasks)
        timer = asyncio.timeout(self._time_limit_s or None)
        try:
            async with timer:
                while pending and not self._ledger.over():
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
        except TimeoutError:
            if not timer.expired():
                raise
            return "time"
        finally:
            for task in (*tasks, ticker):
                task.cancel()
            await asyncio.gather(*tasks, ticker, return_exceptions=True)
        return "finished"

    async def _work(self, groups: Iterator[list[int]]) -> None:
        """Play groups of games one after another."""
        assert self._executor is not None
        for numbers in groups:
            self._state.playing += len(numbers)
            try:
                games = await self._executor.play(numbers)
            finally:
                self._state.playing -= len(numbers)
            # Record a finished game even if the run ends meanwhile.
            task = asyncio.create_task(self._keep(games))
            self._writing.add(task)
            task.add_done_callback(self._written)
            await asyncio.shield(task)
            if self._ledger.over():
                return

    async def _keep(self, games: Sequence[Game]) -> None:
        loop = asyncio.get_running_loop()
        for game in games:
            entry = await loop.run_in_executor(self._writer, self._ledger.write, game)
            self._ledger.count(entry)
            self._games += 1
            self._measure()
            self._view.game_over(self._state, entry)
            if monotonic() >= self._next_summary:
                self._write_summary()

    def _written(self, task: asyncio.Task[None]) -> None:
        """Keep the first failure: the task that waits for this one may have been cancelled."""
        self._writing.discard(task)
        failure = None if task.cancelled() else task.exception()  # asyncio reports those that nobody asks for
        self._failure = self._failure or failure

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._measure()
            self._view.tick(self._state)

    def _measure(self) -> None:
        self._state.throughput = Throughput(
            seconds=monotonic() - self._began,
            concurrency=self._state.throughput.concurrency,
            games=self._games,
            pool=self._executor.statistics() if self._executor is not None else PoolStatistics(),
        )

    def _write_summary(self, *, last: bool = False) -> None:
        self._next_summary = monotonic() + SUMMARY_SECONDS
        data = self._ledger.summary()
        if data is None:
            return
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        path = self._ledger.summary_file
        try:
            write_atomically(path, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            if last:
                self._view.note(f"cannot write {path}: {error.strerror}")


def _grouped(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """Return the numbers in groups of games that are played together."""
    return (list(group) for _, group in groupby(numbers, key=lambda number: number // size))

# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign: numbered games that an executor plays concurrently, each recorded and counted at its end.

A subclass of `Campaign` is a kind of work: a match, a tuning, self-play, labelling. It defines the games, the
files that a finished game is written to, the dependencies that a resumed folder must have, and a sufficient
result. The campaign ends when all games are played, the result is sufficient, the time is over, or it is
cancelled. A later run of the same campaign plays the missing games only.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, Literal, TypeVar

from engine.apps.campaign.display import QuietView
from engine.search.pool import PoolStatistics
from engine.workers.executor import ExecutorError, FailedGame, GameExecutor, GameJob, Log, MakeExecutor
from engine.workers.local import local_executor
from protocol.common.files import write_atomically

MOST_FAILED = 10
"""Games that may fail by errors that nobody thought of, more than are played, before the run ends."""

SUMMARY_SECONDS = 5.0
"""Minimum time between two writes of the summary during the games."""

RunEnding = Literal["finished", "time", "interrupted"]

Game = TypeVar("Game")
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Throughput:
    """The speed of a run, without games of earlier runs.

    seconds: since the start of the games. concurrency: concurrent games. games: finished. pool: evaluations
    of all games, running ones included.
    """

    seconds: float = 0.0
    concurrency: int = 0
    games: int = 0
    pool: PoolStatistics = field(default_factory=PoolStatistics)

    @property
    def games_per_hour(self) -> float:
        return 3600 * self.games / self.seconds if self.seconds > 0 else 0.0

    @property
    def moves_per_second(self) -> float:
        return self.pool.moves / self.seconds if self.seconds > 0 else 0.0


class Campaign(ABC, Generic[Game, Entry]):
    """The games of one kind, and the state of their run. Only the event loop may use it.

    job: plays the games; set by `prepare` at the latest. resumed: games of earlier runs. playing: running
    games.
    """

    job: GameJob[Game]

    def __init__(
        self,
        numbers: range | count[int],
        summary_file: Path | None = None,
        *,
        concurrency: int = 0,
        workers: int = 0,
        time_limit_s: float = 0.0,
    ) -> None:
        """numbers: of all games. concurrency, workers: 0 chooses by the evaluator. time_limit_s: seconds of
        play; 0 is no limit."""
        self.numbers = numbers
        self.summary_file = summary_file
        self.concurrency, self.workers, self.time_limit_s = concurrency, workers, time_limit_s
        self.resumed = self.playing = 0
        self.throughput = Throughput()

    # -- the kind of work --------------------------------------------------------------------------------

    async def prepare(self, note: Log) -> None:
        """Read what the games need, before any file is written."""

    async def begin(self, note: Log) -> None:
        """Read what missing games need."""

    def open(
        self, *, restart: bool = False, overwrite: bool = False, log: Log = lambda text: None
    ) -> Collection[int]:
        """Open or create the files, count their games, and return the numbers of these.

        restart: discard existing games. overwrite: replace files of other programs. Raises JournalError if
        the files belong to other games or are in use.
        """
        return ()

    @abstractmethod
    def write(self, game: Game) -> Entry:
        """Write a game to disk, and sync it. A dedicated thread calls it for one game at a time. Raises
        JournalError."""

    @abstractmethod
    def count(self, entry: Entry) -> None:
        """Count a recorded game."""

    def numbered(self, number: int) -> int:
        """Return the number of a game that starts now, with what the executor must know of it."""
        return number

    def over(self) -> bool:
        """Return True if the counted games are enough. Raises an error that makes more games useless."""
        return False

    def summary(self) -> Mapping[str, Any] | None:
        """Return the state as JSON data; None while there is nothing to write."""
        return None

    def close(self) -> None:
        """Close the files. Idempotent."""

    # -- its run -----------------------------------------------------------------------------------------

    async def run(
        self,
        view: QuietView,
        *,
        restart: bool = False,
        overwrite: bool = False,
        make_executor: MakeExecutor[Game] | None = None,
    ) -> RunEnding:
        """Play the missing games, and write the summary.

        restart, overwrite: as for `open`. make_executor: creates the executor (default: on this machine).
        Raises OpeningError, JournalError, ExecutorError, and the errors of the kind's players and of `over`.
        Finished games are recorded in any case.
        """
        await self.prepare(view.note)
        try:
            played = set(
                await asyncio.to_thread(self.open, restart=restart, overwrite=overwrite, log=view.note)
            )
            left = None
            if isinstance(self.numbers, range):
                left = len(self.numbers) - sum(number in self.numbers for number in played)
            if left == 0 or self.over():
                return "finished"
            await self.begin(view.note)
            missing = (number for number in self.numbers if number not in played)
            return await self.play(view, missing, most=left, make_executor=make_executor)
        finally:
            await asyncio.to_thread(self.close)

    async def play(
        self,
        view: QuietView,
        numbers: Iterable[int],
        *,
        most: int | None = None,
        make_executor: MakeExecutor[Game] | None = None,
    ) -> RunEnding:
        """Play the games with these numbers. most: upper limit of concurrent games. Otherwise as `run`."""
        make_executor = make_executor or partial(local_executor, workers=self.workers)
        return await _CampaignRun(self, view).play(make_executor, numbers, most)


class _CampaignRun(Generic[Game, Entry]):
    """One run of a campaign's games."""

    def __init__(self, campaign: Campaign[Game, Entry], view: QuietView) -> None:
        self._campaign = campaign
        self._view = view
        self._executor: GameExecutor[Game] | None = None
        self._writer = ThreadPoolExecutor(1, "game-writer")
        self._writing: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._began = perf_counter()
        self._games = 0
        self._failed: list[FailedGame] = []
        self._next_summary = 0.0

    async def play(
        self, make_executor: MakeExecutor[Game], numbers: Iterable[int], most: int | None
    ) -> RunEnding:
        ending: RunEnding = "finished"
        campaign = self._campaign
        try:
            self._executor = executor = await make_executor(campaign.job, self._view.note)
            suggested = await executor.open()
            at_once = campaign.concurrency or suggested
            if most is not None:
                at_once = min(at_once, most)
            self._began = perf_counter()
            campaign.throughput = Throughput(concurrency=at_once)
            self._view.started(campaign)
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
        if self._failed and ending == "finished":
            raise self._too_many()
        return ending

    async def _play_groups(self, groups: Iterator[list[int]], at_once: int) -> RunEnding:
        """Play until no game is left, the games are enough, the time is over or a task fails."""
        tasks = [asyncio.create_task(self._work(groups)) for _ in range(at_once)]
        ticker = asyncio.create_task(self._tick())
        pending = set(tasks)
        timer = asyncio.timeout(self._campaign.time_limit_s or None)
        try:
            async with timer:
                while pending and not self._campaign.over():
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
            self._campaign.playing += len(numbers)
            try:
                games = await self._executor.play([self._campaign.numbered(number) for number in numbers])
            finally:
                self._campaign.playing -= len(numbers)
            # Record a finished game even if the run ends meanwhile.
            task = asyncio.create_task(self._keep(games))
            self._writing.add(task)
            task.add_done_callback(self._written)
            await asyncio.shield(task)
            if self._campaign.over():
                return

    def _too_many(self) -> ExecutorError:
        first = self._failed[0]
        return ExecutorError(
            f"{len(self._failed)} games failed, the first is game {first.number + 1}: {first.reason}; "
            "the same command plays them again"
        )

    async def _keep(self, games: Sequence[Game | FailedGame]) -> None:
        loop = asyncio.get_running_loop()
        for game in games:
            if isinstance(game, FailedGame):
                self._failed.append(game)
                self._view.note(f"game {game.number + 1} failed: {game.reason}")
                if len(self._failed) > self._games + MOST_FAILED:
                    raise self._too_many()
                continue
            entry = await loop.run_in_executor(self._writer, self._campaign.write, game)
            self._campaign.count(entry)
            self._games += 1
            self._measure()
            self._view.game_over(self._campaign, entry)
            if perf_counter() >= self._next_summary:
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
            self._view.tick(self._campaign)

    def _measure(self) -> None:
        self._campaign.throughput = Throughput(
            seconds=perf_counter() - self._began,
            concurrency=self._campaign.throughput.concurrency,
            games=self._games,
            pool=self._executor.statistics() if self._executor is not None else PoolStatistics(),
        )

    def _write_summary(self, *, last: bool = False) -> None:
        self._next_summary = perf_counter() + SUMMARY_SECONDS
        path, data = self._campaign.summary_file, self._campaign.summary()
        if path is None or data is None:
            return
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            write_atomically(path, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            if last:
                self._view.note(f"cannot write {path}: {error.strerror}")


def _grouped(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """Return the numbers in groups of games that are played together."""
    return (list(group) for _, group in groupby(numbers, key=lambda number: number // size))

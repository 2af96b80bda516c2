"""Plays games of self-play, many at once, each written down when it is over. What was written down is not
played again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, groupby
from time import monotonic
from typing import Literal, Protocol

from engine.games.openings import Opening, read_openings
from engine.match.summary import write_summary
from engine.selfplay.archive import Archive, GameEntry
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame
from engine.selfplay.job import SelfPlayJob
from engine.selfplay.statistics import Pace, Totals
from engine.workers.executor import MakePlace, Place
from engine.workers.local import machine_place

MAX_OPENINGS = 2000
"""Openings drawn before they repeat."""

SUMMARY_SECONDS = 10.0
"""Least time between two writings of the summary while games go on."""

Ending = Literal["finished", "time", "interrupted"]


class View(Protocol):
    """Who shows self-play. Called from the event loop; none of it may take long."""

    def started(self, runner: SelfPlayRunner) -> None:
        """Games begin."""

    def game_over(self, runner: SelfPlayRunner, entry: GameEntry) -> None:
        """A game was written down."""

    def tick(self, runner: SelfPlayRunner) -> None:
        """A second has passed."""

    def note(self, text: str) -> None:
        """Something the user should know. Called from any thread."""


class SelfPlayRunner:
    """One run. totals: all games in the folder. resumed: how many were there before. playing: under way."""

    def __init__(
        self,
        config: SelfPlayConfig,
        view: View,
        *,
        restart: bool = False,
        make_place: MakePlace[PlayedGame] | None = None,
    ) -> None:
        """restart: discard the games played before. make_place: where to play, if not on this machine."""
        self.config = config
        self.totals = Totals()
        self.pace = Pace()
        self.resumed = 0
        self.playing = 0
        self._view = view
        self._restart = restart
        self._make_place = make_place or machine_place(config.workers)
        self._place: Place[PlayedGame] | None = None
        self._archive: Archive | None = None
        self._writer = ThreadPoolExecutor(1, "selfplay-archive")
        self._writing: set[asyncio.Task[None]] = set()
        self._began = monotonic()
        self._positions_before = 0
        self._next_summary = 0.0

    async def run(self) -> Ending:
        """Play until all games are played, the time is over, or it is cancelled; write the summary.

        Raises OpeningError, JournalError and PlaceError, each with the games so far kept.
        """
        config = self.config
        rounds = min(config.games or MAX_OPENINGS, MAX_OPENINGS)
        openings = await asyncio.to_thread(
            read_openings, config.openings, rounds, seed=config.seed, chess960=config.options.chess960
        )
        archive = await asyncio.to_thread(Archive, config, restart=self._restart, log=self._view.note)
        self._archive = archive
        try:
            for entry in archive.entries:
                self.totals.add(entry)
            self.resumed = len(archive.entries)
            self._positions_before = self.totals.positions
            played = {entry.number for entry in archive.entries}
            if config.games and played.issuperset(range(config.games)):
                return "finished"
            return await self._play_all(openings, played)
        finally:
            archive.close()

    def data(self) -> dict[str, object]:
        """The state as JSON data: the summary file, and what --json prints."""
        config = self.config
        return {
            "output": config.output,
            "games_wanted": config.games,
            "resumed": self.resumed,
            **self.totals.data(),
            "pace": self.pace.data(),
        }

    async def _play_all(self, openings: Sequence[Opening], played: set[int]) -> Ending:
        config = self.config
        place = self._place = self._make_place(SelfPlayJob(config, tuple(openings)), self._view.note)
        ending: Ending = "finished"
        try:
            suggested = await place.open()
            concurrency = config.concurrency or suggested
            if config.games:
                concurrency = min(concurrency, len(set(range(config.games)) - played))
            self._began = monotonic()
            self.pace = Pace(concurrency=concurrency)
            self._view.started(self)
            waiting = self._tasks(played, place.games_per_task)
            at_once = -(-concurrency // place.games_per_task)
            workers = [asyncio.create_task(self._work(waiting)) for _ in range(at_once)]
            ticker = asyncio.create_task(self._tick())
            try:
                async with asyncio.timeout(config.time_limit_s or None):
                    await _until_done(workers)
            except TimeoutError:
                ending = "time"
            finally:
                for task in (*workers, ticker):
                    task.cancel()
                await asyncio.gather(*workers, ticker, return_exceptions=True)
        except asyncio.CancelledError:
            # Ctrl-C: what is done so far is the result.
            current = asyncio.current_task()
            if current is not None:
                current.uncancel()
            ending = "interrupted"
        finally:
            await asyncio.gather(*self._writing, return_exceptions=True)
            self._measure()
            await place.close()
            await asyncio.to_thread(self._writer.shutdown)
            self._write_summary(last=True)
        return ending

    def _tasks(self, played: set[int], size: int) -> Iterator[list[int]]:
        """The numbers of the games still to play, in groups that are played together."""
        numbers = iter(range(self.config.games)) if self.config.games else count()
        missing = (number for number in numbers if number not in played)
        return (list(group) for _, group in groupby(missing, key=lambda number: number // size))

    async def _work(self, waiting: Iterator[list[int]]) -> None:
        """Play one task after the other."""
        assert self._place is not None
        for numbers in waiting:
            self.playing += len(numbers)
            try:
                games = await self._place.play(numbers)
            finally:
                self.playing -= len(numbers)
            # A game that is over is written down even if the run ends meanwhile.
            task = asyncio.create_task(self._count(games))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            await asyncio.shield(task)

    async def _count(self, games: Sequence[PlayedGame]) -> None:
        assert self._archive is not None
        loop = asyncio.get_running_loop()
        for game in games:
            entry = await loop.run_in_executor(self._writer, self._archive.add, game)
            self.totals.add(entry)
            self._measure()
            self._view.game_over(self, entry)
        if monotonic() >= self._next_summary:
            self._write_summary()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._measure()
            self._view.tick(self)

    def _measure(self) -> None:
        if self._place is None:
            return
        asked = self._place.statistics()
        self.pace = Pace(
            seconds=monotonic() - self._began,
            concurrency=self.pace.concurrency,
            games=self.totals.games - self.resumed,
            positions=self.totals.positions - self._positions_before,
            evaluations=asked.evaluations,
            evaluations_per_second=asked.positions_per_second,
            mean_batch=asked.mean_batch,
        )

    def _write_summary(self, *, last: bool = False) -> None:
        self._next_summary = monotonic() + SUMMARY_SECONDS
        assert self._archive is not None
        path = self._archive.folder.summary
        try:
            write_summary(path, self.data())
        except OSError as error:
            if last:
                self._view.note(f"cannot write {path}: {error.strerror}")


async def _until_done(workers: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all, or raise what the first of them raises that fails."""
    pending = set(workers)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

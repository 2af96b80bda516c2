"""Plays a match: many games at once, each written down and counted when it is over, until all are played,
the SPRT has decided, or it is interrupted. What was written down is not played again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic
from typing import Literal, Protocol

from engine.games.openings import read_openings
from engine.games.record import GameOutcome, GameRecord, Reason
from engine.match.archive import MatchArchive
from engine.match.config import MatchConfig
from engine.match.job import MatchJob
from engine.match.results.standings import Standings
from engine.match.speed import Speed
from engine.match.summary import summary, write_summary
from engine.pool.pool import PoolStatistics
from engine.workers.executor import MakePlace, Place
from engine.workers.local import machine_place

FAULTS_IN_A_ROW = 10
"""Games that one player may lose in a row by ending or stalling, before the match is given up."""

SUMMARY_SECONDS = 5.0
"""Least time between two writings of the summary while games go on."""

Ending = Literal["finished", "sprt", "interrupted"]


class MatchError(RuntimeError):
    """The match cannot go on. What was played is kept. The message says why."""


@dataclass(slots=True)
class MatchState:
    """A match as it stands, for those who show it. outcomes: in the order in which they were counted.

    resumed: how many of them came from the journal. playing: games under way.
    """

    config: MatchConfig
    standings: Standings
    outcomes: list[GameOutcome]
    resumed: int = 0
    playing: int = 0
    speed: Speed = field(default_factory=Speed)


class View(Protocol):
    """Who shows a match. Called from the event loop; none of it may take long."""

    def started(self, state: MatchState) -> None:
        """Players are ready, games begin."""

    def game_over(self, state: MatchState, record: GameRecord) -> None:
        """A game was counted."""

    def tick(self, state: MatchState) -> None:
        """A second has passed."""

    def note(self, text: str) -> None:
        """Something the user should know. Called from any thread."""


class MatchRunner:
    """One run of one match."""

    def __init__(
        self,
        config: MatchConfig,
        view: View,
        *,
        restart: bool = False,
        make_place: MakePlace[GameRecord] | None = None,
    ) -> None:
        """restart: forget the games played before. make_place: where to play, if not on this machine."""
        self._config = config
        self._view = view
        self._restart = restart
        self._make_place = make_place or machine_place(config.workers)
        self._standings = Standings(config.schedule, config.sprt)
        self.state = MatchState(config, self._standings, [])
        self._place: Place[GameRecord] | None = None
        self._began = monotonic()
        self._faults = [0] * len(config.players)
        self._writing: set[asyncio.Task[None]] = set()
        self._next_summary = 0.0

    async def run(self) -> Ending:
        """Play until there is nothing more to play, and write the summary.

        Raises OpeningError, TablebaseError, JournalError, PlayerError, PlaceError and MatchError, each with
        the games so far kept.
        """
        config = self._config
        openings = await asyncio.to_thread(
            read_openings,
            config.openings,
            config.schedule.rounds,
            seed=config.seed,
            chess960=config.chess960,
        )
        archive = await asyncio.to_thread(MatchArchive, config, restart=self._restart, log=self._view.note)
        try:
            self._resume(archive)
            if not self._standings.over:
                await self._play_all(MatchJob(config, tuple(openings)), archive)
            return self._ending()
        finally:
            archive.close()

    def _resume(self, archive: MatchArchive) -> None:
        for outcome in archive.outcomes:
            if outcome.number >= len(self._config.schedule):
                raise MatchError(
                    f"{self._config.files.journal} holds game {outcome.number + 1}, and the match is to have "
                    f"{len(self._config.schedule)}: raise the number of games"
                )
            try:
                self._standings.add(outcome)
            except ValueError as error:
                raise MatchError(f"{self._config.files.journal}: {error}") from None
            self.state.outcomes.append(outcome)
        self.state.resumed = len(archive.outcomes)

    async def _play_all(self, job: MatchJob, archive: MatchArchive) -> None:
        config = self._config
        writer = ThreadPoolExecutor(1, "match-archive")
        place = self._place = self._make_place(job, self._view.note)
        try:
            suggested = await place.open()
            concurrency = min(config.concurrency or suggested, len(config.schedule))
            self._began = monotonic()
            self.state.speed = Speed(concurrency=concurrency)
            self._view.started(self.state)
            waiting = self._missing(place.games_per_task)
            tasks = [
                asyncio.create_task(self._work(waiting, archive, writer))
                for _ in range(-(-concurrency // place.games_per_task))
            ]
            tasks.append(asyncio.create_task(self._tick()))
            await self._until_over(tasks)
        except asyncio.CancelledError:
            # Ctrl-C: what is done so far is the result.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            await asyncio.gather(*self._writing, return_exceptions=True)
            self._measure()
            await place.close()
            await asyncio.to_thread(writer.shutdown)
            self._write_summary(last=True)

    def _missing(self, size: int) -> Iterator[list[int]]:
        """The numbers of the games still to play, in groups that are played together."""
        numbers = (number for number in range(len(self._config.schedule)) if number not in self._standings)
        return (list(group) for _, group in groupby(numbers, key=lambda number: number // size))

    async def _until_over(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until all games are played or one task fails, and end the rest."""
        try:
            pending = set(tasks[:-1])  # The last one ticks for ever.
            while pending and not self._standings.over:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(
        self, waiting: Iterator[list[int]], archive: MatchArchive, writer: ThreadPoolExecutor
    ) -> None:
        """Play one game, or one group of games, after the other."""
        assert self._place is not None
        for numbers in waiting:
            self.state.playing += len(numbers)
            try:
                records = await self._place.play(numbers)
            finally:
                self.state.playing -= len(numbers)
            # A game that is over is written down even if the match ends meanwhile.
            task = asyncio.create_task(self._count(records, archive, writer))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            await asyncio.shield(task)
            if self._standings.over:
                return

    async def _count(
        self, records: Sequence[GameRecord], archive: MatchArchive, writer: ThreadPoolExecutor
    ) -> None:
        for record in records:
            await asyncio.get_running_loop().run_in_executor(writer, archive.add, record)
            outcome = record.outcome
            self._standings.add(outcome)
            self.state.outcomes.append(outcome)
            self._measure()
            self._view.game_over(self.state, record)
            if monotonic() >= self._next_summary:
                self._write_summary()
            self._check_faults(record)

    def _check_faults(self, record: GameRecord) -> None:
        """Raise MatchError when a player does nothing but fail."""
        ended = record.reason in (Reason.DISCONNECT, Reason.STALL)
        loser = record.black if record.result == "1-0" else record.white
        for player in (record.white, record.black):
            self._faults[player] = self._faults[player] + 1 if ended and player == loser else 0
        if self._faults[loser] >= FAULTS_IN_A_ROW:
            raise MatchError(
                f"{self._config.players[loser].name} failed in {FAULTS_IN_A_ROW} games in a row, "
                f"in the last one by {record.reason}{': ' + record.detail if record.detail else ''}"
            )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._measure()
            self._view.tick(self.state)

    def _measure(self) -> None:
        asked = self._place.statistics() if self._place is not None else PoolStatistics()
        self.state.speed = Speed(
            seconds=monotonic() - self._began,
            concurrency=self.state.speed.concurrency,
            games=len(self.state.outcomes) - self.state.resumed,
            moves=asked.moves,
            evaluations=asked.evaluations,
            positions_per_second=asked.positions_per_second,
            mean_batch=asked.mean_batch,
        )

    def _write_summary(self, *, last: bool = False) -> None:
        self._next_summary = monotonic() + SUMMARY_SECONDS
        if not self.state.outcomes:
            return
        try:
            write_summary(
                self._config.files.summary, summary(self._config, self._standings, self.state.speed)
            )
        except OSError as error:
            if last:
                self._view.note(f"cannot write {self._config.files.summary}: {error.strerror}")

    def _ending(self) -> Ending:
        if self._standings.decision != "continue":
            return "sprt"
        return "finished" if self._standings.finished else "interrupted"

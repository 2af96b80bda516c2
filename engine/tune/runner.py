# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of a tuning: concurrent games of many iterations, until all are played or the run is interrupted.

The journal has the values around which each game was played. A resumed run reads its games in their order,
so it continues with the same values. Recorded games are not played again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from engine.games.archive import GameArchive, Messages
from engine.games.record import GameOutcome, GameRecord
from engine.games.run import GameRun, RunEnding, View
from engine.match.archive import game_entry, game_pgn, outcome_of
from engine.match.faults import Faults, MatchError
from engine.match.job import MatchJob
from engine.match.results.standings import Standings
from engine.tune.config import TuneConfig
from engine.tune.job import TuningExecutor, use_values
from engine.tune.plot import write_plot
from engine.tune.progress import Progress, TuneState
from engine.tune.result import summary
from engine.tune.spsa import Values
from engine.workers.executor import GameJob, Log, MakeExecutor
from engine.workers.local import local_executor

PLOT_SECONDS = 30.0
"""Minimum time between two writes of the plot during the games."""

TuneView = View[TuneState, GameRecord]


class TuneRunner:
    """One run of one tuning."""

    def __init__(
        self,
        config: TuneConfig,
        view: TuneView,
        *,
        restart: bool = False,
        overwrite: bool = False,
        make_executor: MakeExecutor[GameRecord] | None = None,
    ) -> None:
        """restart: discard existing games. overwrite: replace files of other programs. make_executor: creates
        the executor (default: on this machine)."""
        self._config = config
        self._view = view
        self._restart, self._overwrite = restart, overwrite
        self._make_executor = make_executor or partial(local_executor, workers=config.match.workers)
        self.state = TuneState(
            config=config.match,
            standings=Standings(config.match.schedule),
            outcomes=[],
            progress=Progress(config),
        )

    async def run(self) -> RunEnding:
        """Play until the tuning is over, and write the summary and the plot.

        Raises the errors of MatchRunner.run. The games so far are kept.
        """
        match, standings = self._config.match, self.state.standings
        job = await MatchJob.read(match, self._view.note, use_values)
        archive = await asyncio.to_thread(
            open_archive,
            self._config,
            restart=self._restart,
            overwrite=self._overwrite,
            log=self._view.note,
        )
        try:
            ledger = _Ledger(self.state, archive)
            if standings.finished:
                return "finished"
            missing = (number for number in range(len(match.schedule)) if number not in standings)
            return await GameRun(self.state, ledger, self._view).play(
                self._tuning_executor,
                job,
                missing,
                concurrency=match.concurrency,
                most=len(match.schedule),
            )
        finally:
            archive.close()
            if self.state.progress.steps:
                write_plot(self.state.progress, self._view.note)

    async def _tuning_executor(self, job: GameJob[GameRecord], log: Log) -> TuningExecutor:
        return TuningExecutor(await self._make_executor(job, log), self.state.progress)


Entry = tuple[GameOutcome, Values]
"""A game of the journal, and the values around which it was played."""


def open_archive(config: TuneConfig, *, restart: bool, overwrite: bool, log: Log) -> GameArchive[Entry]:
    """Open or create the files. Raises JournalError if they belong to something else or are in use."""
    files = config.match.files
    return GameArchive(
        files.journal,
        files.pgn,
        {"journal": "wavefront tune", "event": config.match.event, "identity": config.identity()},
        _entry,
        Messages(
            another_kind="is not a journal of a tuning: choose another --output",
            other_games=f"{files.journal} belongs to another tuning; choose another --output, or "
            "--restart to discard its games",
            damaged="move the file away",
        ),
        beside=(files.summary, config.plot),
        restart=restart,
        overwrite=overwrite,
        log=log,
    )


def _entry(entry: dict[str, Any]) -> Entry:
    return outcome_of(entry), tuple(float(value) for value in entry["theta"])


class _Ledger:
    """Write the games of a tuning to its archive, and count them in its state."""

    def __init__(self, state: TuneState, archive: GameArchive[Entry]) -> None:
        """Count the games in the archive. Raises MatchError if they do not fit the tuning."""
        self._state = state
        self._archive = archive
        self._faults = Faults([player.name for player in state.config.players])
        self._next_plot = monotonic() + PLOT_SECONDS
        for outcome, theta in archive.games:
            state.progress.started(outcome.number, theta)
            try:
                self._add(outcome)
            except ValueError as error:
                raise MatchError(f"{state.config.files.journal}: {error}") from None
        state.resumed = len(archive.games)

    @property
    def summary_file(self) -> Path:
        return self._state.config.files.summary

    def write(self, game: GameRecord) -> GameRecord:
        theta = self._state.progress.started(game.number)
        self._archive.add(game_pgn(self._state.config, game), game_entry(game) | {"theta": theta})
        return game

    def count(self, entry: GameRecord) -> None:
        self._add(entry.outcome)
        self._faults.count(entry)
        if monotonic() >= self._next_plot and self._state.progress.steps:
            self._next_plot = monotonic() + PLOT_SECONDS
            write_plot(self._state.progress)

    def over(self) -> bool:
        """Raises MatchError if a player fails repeatedly."""
        self._faults.check()
        return False

    def summary(self) -> Mapping[str, Any] | None:
        return summary(self._state) if self._state.outcomes else None

    def _add(self, outcome: GameOutcome) -> None:
        self._state.standings.add(outcome)
        self._state.outcomes.append(outcome)
        self._state.progress.count(outcome)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels games until a folder has the requested number of positions. Each game is stored when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

from engine.games import run
from engine.games.openings import OpeningSettings, read_openings
from engine.workers.executor import ExecutorError
from engine.workers.local import local_executor
from training.data.tablebases import open_tablebases
from training.label.archive import SUMMARY, LabelArchive, Totals
from training.label.engine import EngineError, Labeller
from training.label.game import LabelledGame
from training.label.job import ENGINES_PER_PROCESS, LabelJob
from training.label.manifest import Manifest
from training.label.settings import LabelSettings

DROPPED_IN_A_ROW = 5
"""Consecutive dropped games after which the run fails."""

BOOK_OPENINGS = 2000
"""Openings read from the book."""


@dataclass(slots=True, kw_only=True)
class LabelState(run.RunState):
    """State of a labelling run. totals: of all games in the folder."""

    settings: LabelSettings
    folder: Path
    totals: Totals = field(default_factory=Totals)

    def data(self) -> dict[str, Any]:
        """Return the state as JSON data, for the summary file and --json."""
        speed = self.throughput
        return {
            "output": str(self.folder),
            **(
                {"games_wanted": self.settings.games}
                if self.settings.games
                else {"positions_wanted": self.settings.positions}
            ),
            "resumed_games": self.resumed,
            **self.totals.data(),
            "pace": {
                "seconds": speed.seconds,
                "engines": speed.concurrency,
                "positions_per_second": speed.moves_per_second,
                "searches": speed.pool.searches,
            },
        }


View = run.View[LabelState, LabelledGame]


class LabelRunner:
    """One run. backend: of the evaluator for the branches' network; empty: automatic. manifest: of
    the folder; requires its engine."""

    def __init__(
        self,
        settings: LabelSettings,
        folder: Path,
        view: View,
        *,
        backend: str = "",
        manifest: Manifest | None = None,
    ) -> None:
        self._view, self._backend, self._manifest = view, backend, manifest
        self.state = LabelState(settings=settings, folder=folder)

    async def run(self) -> run.RunEnding:
        """Label until there are enough positions, the time is over, or it is cancelled.

        Raises OpeningError, JournalError, TrainingError and ExecutorError; finished games are kept.
        """
        settings = self.state.settings
        settings.engine_options()
        open_tablebases(settings.tablebases, self._view.note)
        # The engine's path may differ from the manifest's.
        stored = settings if self._manifest is None else self._manifest.settings
        archive = await asyncio.to_thread(LabelArchive, self.state.folder, stored)
        try:
            ledger = _Ledger(self.state, archive)
            if ledger.over():
                return "finished"
            await self._check_engine()
            openings = await asyncio.to_thread(
                read_openings,
                OpeningSettings(file=settings.openings),
                BOOK_OPENINGS,
                seed=settings.seed,
                report=self._view.note,
            )
            job = LabelJob(settings, tuple(openings), self._backend)
            played = archive.numbers.copy()
            return await run.GameRun(self.state, ledger, self._view, time_limit_s=settings.time_limit_s).play(
                lambda job, log: local_executor(
                    job, log, workers=ceil(job.games_at_once(None) / ENGINES_PER_PROCESS)
                ),
                job,
                (
                    number
                    for number in (range(settings.games) if settings.games else count())
                    if number not in played
                ),
                concurrency=job.workers,
            )
        finally:
            await asyncio.to_thread(archive.close)

    async def _check_engine(self) -> None:
        """Raise ExecutorError if the manifest requires an engine of another name."""
        if self._manifest is None or self._manifest.made is None:
            return
        required, name = self._manifest.made.engine, await engine_name(self.state.settings)
        if name != required:
            raise ExecutorError(f"the engine is {name!r}, but {self._manifest.path} requires {required!r}")


async def engine_name(settings: LabelSettings) -> str:
    """Start the engine and return its name for itself. Raises ExecutorError."""
    labeller = Labeller(settings, lambda text: None)
    try:
        await labeller.start()
        return labeller.name
    except EngineError as error:
        raise ExecutorError(str(error)) from None
    finally:
        await labeller.close()


class _Ledger:
    """Stores games in their folder and counts them in the run's state."""

    def __init__(self, state: LabelState, archive: LabelArchive) -> None:
        self._state, self._archive = state, archive
        self._dropped: list[str] = []
        state.totals = archive.totals
        state.resumed = archive.totals.games

    @property
    def summary_file(self) -> Path:
        return self._archive.folder / SUMMARY

    def write(self, game: LabelledGame) -> LabelledGame:
        self._archive.add(game)
        return game

    def count(self, entry: LabelledGame) -> None:
        """Record consecutive dropped games; the archive has counted the game."""
        self._dropped = [*self._dropped, entry.dropped] if entry.dropped else []

    def over(self) -> bool:
        """Return True if there are enough positions. Raises ExecutorError after consecutive dropped games."""
        if len(self._dropped) >= DROPPED_IN_A_ROW:
            raise ExecutorError(
                f"{len(self._dropped)} games in a row were dropped, the last one because {self._dropped[-1]}"
            )
        totals, settings = self._state.totals, self._state.settings
        if settings.games:
            return totals.games + totals.dropped >= settings.games
        return totals.positions >= settings.positions

    def summary(self) -> Mapping[str, Any]:
        return self._state.data()

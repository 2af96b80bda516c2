# SPDX-License-Identifier: GPL-3.0-or-later
"""Labelling as a campaign: it ends when a folder has the requested number of positions or games."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

from engine.apps.campaign import Campaign
from engine.apps.games import OpeningSettings, read_openings
from engine.workers.executor import ExecutorError, Log
from training.data.tablebases import open_tablebases
from training.label.archive import SUMMARY, LabelArchive, LabelTotals
from training.label.engine import Labeller, NoEngineError
from training.label.game import LabelledGame
from training.label.job import ENGINES_PER_PROCESS, LabelJob
from training.label.manifest import Manifest
from training.label.settings import LabelSettings

DROPPED_IN_A_ROW = 5
"""Consecutive dropped games after which the run fails."""

BOOK_OPENINGS = 2000
"""Openings read from the book."""


class LabelCampaign(Campaign[LabelledGame, LabelledGame]):
    """The games of a folder. totals: all games in it."""

    def __init__(
        self, settings: LabelSettings, folder: Path, *, backend: str = "", manifest: Manifest | None = None
    ) -> None:
        """backend: of the evaluator for the branches' network; empty: automatic. manifest: of the folder;
        requires its engine."""
        self.job: LabelJob = LabelJob(settings, (), backend)
        super().__init__(
            range(settings.games) if settings.games else count(),
            folder / SUMMARY,
            concurrency=self.job.workers,
            workers=ceil(self.job.workers / ENGINES_PER_PROCESS),
            time_limit_s=settings.time_limit_s,
        )
        self.settings, self.folder = settings, folder
        self.totals = LabelTotals()
        self._manifest = manifest
        self._archive: LabelArchive | None = None
        self._dropped: list[str] = []

    async def prepare(self, note: Log) -> None:
        """Raises SettingsError and TrainingError."""
        self.settings.engine_options()
        open_tablebases(self.settings.tablebases, note)

    def open(
        self, *, restart: bool = False, overwrite: bool = False, log: Log = lambda text: None
    ) -> Collection[int]:
        # The engine's path may differ from the manifest's.
        stored = self.settings if self._manifest is None else self._manifest.settings
        self._archive = LabelArchive(self.folder, stored)
        self.totals, self.resumed = self._archive.totals, self._archive.totals.games
        return self._archive.numbers

    async def begin(self, note: Log) -> None:
        """Raises OpeningError, and ExecutorError if the manifest requires an engine of another name."""
        settings = self.settings
        if self._manifest is not None and self._manifest.made is not None:
            required, name = self._manifest.made.engine, await engine_name(settings)
            if name != required:
                raise ExecutorError(
                    f"the engine is {name!r}, but {self._manifest.path} requires {required!r}"
                )
        openings = await asyncio.to_thread(
            read_openings,
            OpeningSettings(file=settings.openings),
            BOOK_OPENINGS,
            seed=settings.seed,
            report=note,
        )
        self.job = replace(self.job, openings=tuple(openings))

    def write(self, game: LabelledGame) -> LabelledGame:
        assert self._archive is not None
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
        if self.settings.games:
            return self.totals.games + self.totals.dropped >= self.settings.games
        return self.totals.positions >= self.settings.positions

    def summary(self) -> Mapping[str, Any]:
        speed, settings = self.throughput, self.settings
        wanted = (
            {"games_wanted": settings.games} if settings.games else {"positions_wanted": settings.positions}
        )
        return {
            "output": str(self.folder),
            **wanted,
            "resumed_games": self.resumed,
            **self.totals.data(),
            "pace": {
                "seconds": speed.seconds,
                "engines": speed.concurrency,
                "positions_per_second": speed.moves_per_second,
                "searches": speed.pool.searches,
            },
        }

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()


async def engine_name(settings: LabelSettings) -> str:
    """Start the engine and return its name for itself. Raises ExecutorError."""
    labeller = Labeller(settings, lambda text: None)
    try:
        await labeller.start()
        return labeller.name
    except NoEngineError as error:
        raise ExecutorError(str(error)) from None
    finally:
        await labeller.close()

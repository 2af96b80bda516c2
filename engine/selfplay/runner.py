# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of self-play: concurrent games, each recorded at its end. Recorded games are not played again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from engine.games import run
from engine.games.openings import read_openings
from engine.selfplay.archive import Archive, GameEntry
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame
from engine.selfplay.job import SelfPlayJob
from engine.selfplay.statistics import Totals
from engine.workers.executor import MakeExecutor
from engine.workers.local import local_executor

MAX_OPENINGS = 2000
"""Number of openings drawn before they repeat."""

Ending = run.RunEnding


@dataclass(slots=True, kw_only=True)
class SelfPlayState(run.RunState):
    """The state of self-play, for displays. totals: all games in the folder. resumed_positions: training
    records in the folder when the run began."""

    config: SelfPlayConfig
    totals: Totals = field(default_factory=Totals)
    resumed_positions: int = 0

    @property
    def positions(self) -> int:
        """Training records written by this run."""
        return self.totals.positions - self.resumed_positions

    def data(self) -> dict[str, Any]:
        """Return the state as JSON data, for the summary file and --json."""
        speed = self.throughput
        return {
            "output": self.config.output,
            "games_wanted": self.config.games,
            "resumed": self.resumed,
            **self.totals.data(),
            "pace": {
                "seconds": speed.seconds,
                "concurrency": speed.concurrency,
                "games": speed.games,
                "positions": self.positions,
                "evaluations": speed.pool.evaluations,
                "evaluations_per_second": speed.pool.positions_per_second,
                "mean_batch": speed.pool.mean_batch,
                "games_per_hour": speed.games_per_hour,
            },
        }


View = run.View[SelfPlayState, GameEntry]


class SelfPlayRunner:
    """One run of self-play."""

    def __init__(
        self,
        config: SelfPlayConfig,
        view: View,
        *,
        restart: bool = False,
        overwrite: bool = False,
        make_executor: MakeExecutor[PlayedGame] | None = None,
    ) -> None:
        """restart: discard existing games. overwrite: replace files of other programs. make_executor: creates
        the executor (default: on this machine)."""
        self._config = config
        self._view = view
        self._restart, self._overwrite = restart, overwrite
        self._make_executor = make_executor or partial(local_executor, workers=config.workers)
        self.state = SelfPlayState(config=config)

    async def run(self) -> Ending:
        """Play until all games are played, the time is over, or it is cancelled, and write the summary.

        Raises OpeningError, JournalError and ExecutorError. The games so far are kept.
        """
        config = self._config
        rounds = min(config.games or MAX_OPENINGS, MAX_OPENINGS)
        openings = await asyncio.to_thread(
            read_openings,
            config.openings,
            rounds,
            seed=config.seed,
            chess960=config.options.chess960,
            report=self._view.note,
        )
        archive = await asyncio.to_thread(
            Archive, config, restart=self._restart, overwrite=self._overwrite, log=self._view.note
        )
        try:
            ledger = _Ledger(self.state, archive)
            played = {entry.number for entry in archive.entries}
            wanted = range(config.games) if config.games else count()
            left = len(set(range(config.games)) - played) if config.games else None
            if left == 0:
                return "finished"
            return await run.GameRun(self.state, ledger, self._view, time_limit_s=config.time_limit_s).play(
                self._make_executor,
                SelfPlayJob(config, tuple(openings)),
                (number for number in wanted if number not in played),
                concurrency=config.concurrency,
                most=left,
            )
        finally:
            archive.close()


class _Ledger:
    """Write the games of self-play to their archive, and count them in the run's state."""

    def __init__(self, state: SelfPlayState, archive: Archive) -> None:
        """Count the games in the archive."""
        self._state = state
        self._archive = archive
        for entry in archive.entries:
            state.totals.add(entry)
        state.resumed = len(archive.entries)
        state.resumed_positions = state.totals.positions

    @property
    def summary_file(self) -> Path:
        return self._archive.folder.summary

    def write(self, game: PlayedGame) -> GameEntry:
        return self._archive.add(game)

    def count(self, entry: GameEntry) -> None:
        self._state.totals.add(entry)

    def over(self) -> bool:
        """Return False: no result makes further games unnecessary."""
        return False

    def summary(self) -> Mapping[str, Any]:
        return self._state.data()

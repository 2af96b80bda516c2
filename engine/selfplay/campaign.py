# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-play as a campaign: games are written as training data, as PGN for people, and to the journal.

A game is written to the training file, then to the PGN, then to the journal. The next attempt at a game
overwrites a training file without a line in the journal. So no game occurs twice, and no file is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from engine.games.archive import GameArchive
from engine.games.campaign import Campaign
from engine.games.journal import JournalError
from engine.games.openings import read_openings
from engine.games.pgn import pgn_text
from engine.selfplay.archive import Folder, GameEntry, write_training
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame
from engine.selfplay.job import SelfPlayJob
from engine.selfplay.statistics import Totals
from protocol.host.files import UNFINISHED
from protocol.host.folders import expanded

MAX_OPENINGS = 2000
"""Number of openings drawn before they repeat."""


class SelfPlayCampaign(Campaign[PlayedGame, GameEntry]):
    """The games of self-play. totals: all games in the folder."""

    def __init__(self, config: SelfPlayConfig) -> None:
        self.folder = Folder(expanded(config.output), config.format)
        super().__init__(
            range(config.games) if config.games else count(),
            self.folder.summary,
            concurrency=config.concurrency,
            workers=config.workers,
            time_limit_s=config.time_limit_s,
        )
        self.config = config
        self.totals = Totals()
        self._resumed_positions = 0
        self._archive: GameArchive[GameEntry] | None = None
        self._job: SelfPlayJob | None = None

    @property
    def positions(self) -> int:
        """Training records written by this run."""
        return self.totals.positions - self._resumed_positions

    async def prepare(self, note: Callable[[str], None]) -> None:
        """Raises OpeningError."""
        openings = await asyncio.to_thread(
            read_openings,
            self.config.openings,
            min(self.config.games or MAX_OPENINGS, MAX_OPENINGS),
            seed=self.config.seed,
            chess960=self.config.options.chess960,
            report=note,
        )
        self._job = SelfPlayJob(self.config, tuple(openings))

    async def job(self, note: Callable[[str], None]) -> SelfPlayJob:
        assert self._job is not None
        return self._job

    def open(
        self,
        *,
        restart: bool = False,
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> Collection[int]:
        folder = self.folder
        known = folder.journal.exists()
        if not (overwrite or known) and any(folder.training_files()):
            raise JournalError(
                f"{folder.training} holds training data, but no journal says of which games: choose "
                "another --output, or --overwrite to delete it"
            )
        self._archive = GameArchive(
            folder.journal,
            folder.pgn,
            {"journal": "wavefront selfplay", "identity": self.config.identity()},
            GameEntry.read,
            kind="self-play",
            others=f"{folder.root} holds games that were played otherwise; choose another --output, or "
            "--restart to discard them",
            beside=(folder.summary,),
            restart=restart,
            overwrite=overwrite,
            log=log,
        )
        self._clear(everything=restart or not known)
        for entry in self._archive.games:
            self.totals.add(entry)
        self.resumed, self._resumed_positions = self.totals.games, self.totals.positions
        return [entry.number for entry in self._archive.games]

    def write(self, game: PlayedGame) -> GameEntry:
        assert self._archive is not None
        config, record = self.config, game.record
        name = Path(config.options.weights).name.removesuffix(".gz").removesuffix(".pb") or "wavefront"
        text = pgn_text(record, [name], [f"{config.nodes} nodes"], event="Wavefront self-play")
        try:
            write_training(self.folder.chunk(record.number), game)
        except OSError as error:
            raise JournalError(f"cannot write in {self.folder.training}: {error.strerror}") from None
        entry = GameEntry.of(game)
        self._archive.add(text, {name: getattr(entry, name) for name in GameEntry.__slots__})
        return entry

    def count(self, entry: GameEntry) -> None:
        self.totals.add(entry)

    def summary(self) -> Mapping[str, Any]:
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

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def _clear(self, *, everything: bool) -> None:
        """Create the folder of training data. Delete unfinished files of a killed run, or all files."""
        folder = self.folder.training
        try:
            folder.mkdir(exist_ok=True)
            for left_over in (
                *folder.glob(f"*{UNFINISHED}"),
                *(self.folder.training_files() if everything else ()),
            ):
                left_over.unlink()
        except OSError as error:
            raise JournalError(f"cannot write in {folder}: {error.strerror}") from None

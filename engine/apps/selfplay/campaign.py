# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-play as a campaign: games are written as training data, as PGN for people, and to the journal.

A game is written to the training file, then to the PGN, then to the journal. The next attempt at a game
overwrites a training file without a line in the journal. So no game occurs twice, and no file is broken.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from engine.apps.campaign.archive import GameCampaign, GameFiles
from engine.apps.games.journal import JournalError
from engine.apps.games.openings import Opening, read_openings
from engine.apps.games.referee import win_for
from engine.apps.selfplay.archive import FinishedGame, Folder, GameEntry
from engine.apps.selfplay.config import SelfPlayConfig
from engine.apps.selfplay.game import play_game
from engine.apps.selfplay.packing import Packer
from engine.options import Options
from engine.search.pool import SearchPool
from engine.workers.executor import LocalExecutor, Log, WorkerContext
from protocol.common.files import UNFINISHED, write_atomically
from protocol.common.folders import expanded
from protocol.common.printing import failing_as


@dataclass(frozen=True, slots=True)
class SelfPlayJob:
    """Games of self-play: a GameJob. openings: game n gets entry n modulo their number."""

    config: SelfPlayConfig
    openings: tuple[Opening, ...]

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.config.options,)

    def games_at_once(self, pool: SearchPool | None) -> int:
        assert pool is not None
        games = self.config.concurrency or pool.recommended_games(self.config.options)
        return min(games, self.config.games or games)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> SelfPlayExecutor:
        config = replace(self.config, options=context.options(self.config.options))
        return SelfPlayExecutor(replace(self, config=config), pool or context.search_pool(log))


class SelfPlayExecutor(LocalExecutor[FinishedGame, SelfPlayJob]):
    """Plays games in this process."""

    pool: SearchPool

    async def start(self) -> int:
        """Wait for the evaluator."""
        return await asyncio.to_thread(self.pool.recommended_games, self.job.config.options)

    async def play_game(self, number: int) -> FinishedGame:
        opening, config = self.job.openings[number % len(self.job.openings)], self.job.config
        playing = self.pool.drive(play_game(number, opening, config, self.pool))
        return await asyncio.to_thread(FinishedGame.of, await asyncio.wrap_future(playing), config)


@dataclass(slots=True)
class Totals:
    """Totals of games. positions: training records. resign_checked: playthrough games in which a side would
    have resigned. resign_wrong: those that it did not lose."""

    games: int = 0
    positions: int = 0
    plies: int = 0
    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    resign_checked: int = 0
    resign_wrong: int = 0

    def add(self, entry: GameEntry) -> None:
        """Count a game."""
        self.games += 1
        self.positions += entry.positions
        self.plies += entry.plies
        self.results[entry.result] += 1
        self.reasons[str(entry.reason)] += 1
        if entry.playthrough and entry.would_resign is not None:
            self.resign_checked += 1
            self.resign_wrong += entry.result != win_for(entry.would_resign == "black")

    def data(self) -> dict[str, Any]:
        """Return the totals as JSON data."""
        return {
            "games": self.games,
            "positions": self.positions,
            "mean_plies": self.plies / max(1, self.games),
            "white_wins": self.results["1-0"],
            "draws": self.results["1/2-1/2"],
            "black_wins": self.results["0-1"],
            "reasons": dict(self.reasons.most_common()),
            "resign_checked": self.resign_checked,
            "resign_wrong": self.resign_wrong,
        }


MAX_OPENINGS = 2000
"""Number of openings drawn before they repeat."""


class SelfPlayCampaign(GameCampaign[FinishedGame, GameEntry, GameEntry]):
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
        self._packer: Packer | None = None

    @property
    def positions(self) -> int:
        """Training records written by this run."""
        return self.totals.positions - self._resumed_positions

    async def prepare(self, note: Log) -> None:
        """Raises OpeningError."""
        openings = await asyncio.to_thread(
            read_openings,
            self.config.openings,
            min(self.config.games or MAX_OPENINGS, MAX_OPENINGS),
            seed=self.config.seed,
            chess960=self.config.options.chess960,
            report=note,
        )
        self.job = SelfPlayJob(self.config, tuple(openings))

    def files(self) -> GameFiles:
        return GameFiles(
            journal=self.folder.journal,
            pgn=self.folder.pgn,
            companions=(self.folder.summary,),
            header={"journal": "wavefront selfplay", "identity": self.config.identity()},
            kind="self-play",
            others=f"{self.folder.root} holds games that were played otherwise; choose another --output, or "
            "--restart to discard them",
        )

    def open(
        self, *, restart: bool = False, overwrite: bool = False, log: Log = lambda text: None
    ) -> Collection[int]:
        known = self.folder.journal.exists()
        if not (overwrite or known) and any(self.folder.training_files()):
            raise JournalError(
                f"{self.folder.training} holds training data, but no journal says of which games: choose "
                "another --output, or --overwrite to delete it"
            )
        numbers = super().open(restart=restart, overwrite=overwrite, log=log)
        try:
            self._clear(everything=restart or not known)
            if self.config.format == "shards":
                self._packer = Packer(self.folder, numbers)
        except JournalError:
            self.close()
            raise
        return numbers

    def read(self, entry: Mapping[str, Any]) -> GameEntry:
        return GameEntry.read(entry)

    def resume(self, games: Sequence[GameEntry]) -> None:
        for game in games:
            self.totals.add(game)
        self._resumed_positions = self.totals.positions

    def write(self, game: FinishedGame) -> GameEntry:
        entry = game.entry
        with failing_as(JournalError, f"cannot write in {self.folder.training}"):
            write_atomically(self.folder.chunk(entry.number), game.training, durable=True)
        self.keep(game.pgn, {name: getattr(entry, name) for name in GameEntry.__slots__})
        if self._packer is not None:
            self._packer.add(entry.number)
        return entry

    def close(self) -> None:
        try:
            if self._packer is not None:
                self._packer.close()
        finally:
            super().close()

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

    def _clear(self, *, everything: bool) -> None:
        """Create the folder of training data. Delete unfinished files of a killed run, or all files."""
        folder = self.folder.training
        with failing_as(JournalError, f"cannot write in {folder}"):
            folder.mkdir(exist_ok=True)
            for left_over in (
                *folder.glob(f"*{UNFINISHED}"),
                *(self.folder.training_files() if everything else ()),
            ):
                left_over.unlink()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage of self-play's games: training data, PGN, and the journal that defines which games count.

OUTPUT/training/game_000000.gz   one file per game, in lc0's format; game_000000.shard as a shard
OUTPUT/games.pgn                 the same games for people
OUTPUT/journal.jsonl             one line per game: a game counts once its line is written
OUTPUT/summary.json              totals

A game is written to the training file, then to the PGN, then to the journal. After a crash the PGN is
truncated to the size in the journal. The next attempt at a game overwrites a training file without a line in
the journal. So no game occurs twice, and no file is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from engine._core import Game
from engine.games.archive import GameArchive, Messages
from engine.games.journal import JournalError
from engine.games.pgn import pgn_text
from engine.games.record import Reason, Result, as_result
from engine.selfplay.chunk import write_chunk
from engine.selfplay.config import SelfPlayConfig, TrainingFormat
from engine.selfplay.game import PlayedGame, Side
from engine.selfplay.shard import SUFFIX, write_shard
from engine.selfplay.shard_games import columns_of, shard_of
from protocol.host.files import UNFINISHED
from protocol.host.folders import expanded

SUFFIXES: dict[TrainingFormat, str] = {"lc0": ".gz", "shards": SUFFIX}
"""Suffixes of training files."""


@dataclass(frozen=True, slots=True)
class GameEntry:
    """A game's entry in the journal. positions: training records. plies: opening included."""

    number: int
    result: Result
    reason: Reason
    plies: int
    positions: int
    seconds: float
    playthrough: bool
    would_resign: Side | None

    @classmethod
    def of(cls, game: PlayedGame) -> GameEntry:
        record = game.record
        return cls(
            number=record.number,
            result=record.result,
            reason=record.reason,
            plies=len(record.opening_moves) + len(record.moves),
            positions=len(game.training),
            seconds=round(record.seconds, 3),
            playthrough=game.playthrough,
            would_resign=game.would_resign,
        )

    @classmethod
    def read(cls, data: dict[str, Any]) -> GameEntry:
        """Return the entry in JSON data. Raises KeyError and ValueError."""
        return cls(
            number=int(data["number"]),
            result=as_result(data["result"]),
            reason=Reason(data["reason"]),
            plies=int(data["plies"]),
            positions=int(data["positions"]),
            seconds=float(data["seconds"]),
            playthrough=bool(data["playthrough"]),
            would_resign=data["would_resign"],
        )


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of a run of self-play."""

    root: Path
    format: TrainingFormat = "lc0"

    @property
    def training(self) -> Path:
        return self.root / "training"

    @property
    def pgn(self) -> Path:
        return self.root / "games.pgn"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    def chunk(self, number: int) -> Path:
        """Return the training file of a game."""
        return self.training / f"game_{number:06d}{SUFFIXES[self.format]}"

    def training_files(self) -> Iterator[Path]:
        """Return the training files of all games, in both formats."""
        return chain.from_iterable(self.training.glob(f"game_*{suffix}") for suffix in SUFFIXES.values())


class Archive:
    """The folder of a run, open for more games. One thread at a time may use it.

    entries: games that were in it when it was opened.
    """

    def __init__(
        self,
        config: SelfPlayConfig,
        *,
        restart: bool = False,
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open or create the folder. restart: discard its games. overwrite: replace files of other programs.
        Raises JournalError if it belongs to other games or is in use."""
        self.folder = Folder(expanded(config.output), config.format)
        self._name = Path(config.options.weights).name.removesuffix(".gz").removesuffix(".pb") or "wavefront"
        self._time_control = f"{config.nodes} nodes"
        known = self.folder.journal.exists()
        if not (overwrite or known) and any(self.folder.training_files()):
            raise JournalError(
                f"{self.folder.training} holds training data, but no journal says of which games: choose "
                "another --output, or --overwrite to delete it"
            )
        self._files = GameArchive(
            self.folder.journal,
            self.folder.pgn,
            {"journal": "wavefront selfplay", "identity": config.identity()},
            GameEntry.read,
            Messages(
                another_kind="is not a journal of self-play: choose another --output",
                other_games=f"{self.folder.root} holds games that were played otherwise; choose another "
                "--output, or --restart to discard them",
                damaged="move the folder away",
            ),
            beside=(self.folder.summary,),
            restart=restart,
            overwrite=overwrite,
            log=log,
        )
        self.entries = self._files.games
        try:
            self._clear(everything=restart or not known)
        except JournalError:
            self._files.close()
            raise

    def add(self, game: PlayedGame) -> GameEntry:
        """Write a game to disk, and sync it. Raises JournalError."""
        record = game.record
        text = pgn_text(record, [self._name], [self._time_control], event="Wavefront self-play")
        try:
            _write_training(self.folder.chunk(record.number), game)
        except OSError as error:
            raise JournalError(f"cannot write in {self.folder.training}: {error.strerror}") from None
        entry = GameEntry.of(game)
        self._files.add(text, {name: getattr(entry, name) for name in GameEntry.__slots__})
        return entry

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._files.close()

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


def _write_training(path: Path, game: PlayedGame) -> None:
    """Write a game's training file. Raises OSError."""
    if path.suffix != SUFFIX:
        write_chunk(path, game.training)
        return
    record = game.record
    played = Game(record.start_fen, True)  # Castling is king takes rook, as in shards.
    for move in (*record.opening_moves, *(each.uci for each in record.moves)):
        played.push_uci(move)
    start = Game(record.start_fen, True)
    columns = columns_of(start, played.moves(), len(record.opening_moves), game.training)
    write_shard(path, shard_of([columns], "a game of self-play"))

# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of self-play's games: training data, PGN, and the journal that defines which games count.

OUTPUT/training/game_000000.gz   one file per game, in lc0's format; or
OUTPUT/training/games_000000.shard  shards of many games, and game_000000.game of one until it is packed
OUTPUT/games.pgn                 the same games for people
OUTPUT/journal.jsonl             one line per game: a game counts once its line is written
OUTPUT/summary.json              totals
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from engine._core import Game
from engine.apps.games.pgn import pgn_text
from engine.apps.games.record import Reason, Result, as_result
from engine.apps.selfplay.config import SelfPlayConfig, TrainingFormat
from engine.apps.selfplay.game import PlayedGame, Side
from engine.apps.shards.chunk import chunk_bytes
from engine.apps.shards.shard import SUFFIX, shard_bytes
from engine.apps.shards.shard_games import columns_of, shard_of

SUFFIXES: dict[TrainingFormat, str] = {"lc0": ".gz", "shards": ".game"}
"""Suffixes of the files of single games."""


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
    def read(cls, data: Mapping[str, Any]) -> GameEntry:
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


class Folder:
    """The paths of a run of self-play."""

    def __init__(self, root: Path, format: TrainingFormat = "lc0") -> None:
        self.root, self.format = root, format
        self.training = root / "training"
        self.pgn, self.journal, self.summary = (
            root / name for name in ("games.pgn", "journal.jsonl", "summary.json")
        )

    def chunk(self, number: int) -> Path:
        """Return the training file of a game."""
        return self.training / f"game_{number:06d}{SUFFIXES[self.format]}"

    def training_files(self) -> Iterator[Path]:
        """Return the training files of all games, in both formats."""
        suffixes = (*SUFFIXES.values(), SUFFIX)
        return chain.from_iterable(self.training.glob(f"game*_*{suffix}") for suffix in suffixes)


@dataclass(frozen=True, slots=True)
class FinishedGame:
    """What is written of a game, made by the process that played it: one process writes all games."""

    entry: GameEntry
    pgn: str
    training: bytes

    @classmethod
    def of(cls, game: PlayedGame, config: SelfPlayConfig) -> FinishedGame:
        name = Path(config.options.weights).name.removesuffix(".gz").removesuffix(".pb") or "wavefront"
        pgn = pgn_text(game.record, [name], [f"{config.nodes} nodes"], event="Wavefront self-play")
        return cls(GameEntry.of(game), pgn, _training(game, config.format))


def _training(game: PlayedGame, format: TrainingFormat) -> bytes:
    """Return a game's training file."""
    if format == "lc0":
        return chunk_bytes(game.training)
    record = game.record
    played = Game(record.start_fen, True)  # Castling is king takes rook, as in shards.
    for move in (*record.opening_moves, *(each.uci for each in record.moves)):
        played.push_uci(move)
    start = Game(record.start_fen, True)
    columns = columns_of(start, played.moves(), len(record.opening_moves), game.training, record.number)
    return shard_bytes(shard_of([columns], "a game of self-play"))

# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts lc0's chunks (records of one game each, gzipped or in tar archives) to the games of a shard.

A record shows its position and up to seven earlier ones. From these the moves before the first record are
reconstructed, so that replaying the game gives every record's planes. If a record does not follow from the
previous one (a rescorer removes positions), a new game starts.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from engine._core import Game, policy_move
from engine.apps.shards import (
    MAX_RECORDS,
    Columns,
    Shard,
    TrainingDataError,
    black_to_move,
    columns_of,
    shard_of,
    transform_of,
)
from training.data.decode import boards_of, fen_of, placement_of
from training.data.records import NO_MOVE, RECORDS, parse_records
from training.data.sources import KnownSources, Source, digest_of

CHUNK_SUFFIXES = (".gz", ".tar", ".tar.gz", ".tgz")
MAX_PROPERTIES = 64 << 10
"""Bytes of a tar header's name and properties."""

MAX_CHUNK = MAX_RECORDS * RECORDS[7].itemsize
HISTORY = 8
REPETITIONS_ONLY = (5, 133)
"""Input formats that show earlier positions only if repeated."""

Broken = Callable[[object, Exception], None]


class ChunkGames:
    """Collects the games of chunks until they are taken as a shard.

    known: sources that were read before. broken: called with each skipped chunk and the error.
    """

    def __init__(self, known: KnownSources, broken: Broken) -> None:
        self._known, self._broken = known, broken
        self._games: list[Columns] = []
        self._sources: list[Source] = []

    @property
    def games(self) -> int:
        return len(self._games)

    def add(self, path: Path) -> None:
        """Add the games of a chunk, or the new games of an archive.

        A truncated archive is ignored, because it may still be being copied.
        """
        games: list[Columns] = []
        sources: list[Source] = []
        broken = False
        try:
            before = Source.of_file(path)
            for chunk, member, data in _chunks(path):
                digest = digest_of(data)
                if member and self._known.has_member(f"{before.name}:{member}", digest):
                    continue
                try:
                    games += games_of(parse_records(_unpacked(data)))
                except Exception as error:  # Files of unknown origin: none ends the import.
                    self._broken(chunk, error)
                    broken = True
                    continue
                if member:
                    sources.append(Source(f"{before.name}:{member}", digest=digest))
                else:
                    before = replace(before, digest=digest)
        except Exception as error:
            self._broken(path, error)
            return
        self._games += games
        self._sources += sources if broken else [*sources, before]

    def take(self) -> tuple[list[Source], Shard]:
        """Return the sources added since the last call, and their games."""
        sources, games = self._sources, self._games
        self._sources, self._games = [], []
        return sources, shard_of(games, f"{len(sources)} sources of chunks")


def _chunks(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield name for messages, name within an archive (or "") and gzipped bytes of every chunk in a file."""
    if not path.name.endswith((".tar", ".tar.gz", ".tgz")):
        with path.open("rb") as file:
            yield str(path), "", _bounded(file)
        return
    with tarfile.open(path, "r|*", tarinfo=_Member) as archive:
        for member in archive:
            wanted = member.isfile() and member.name.endswith(".gz")
            content = archive.extractfile(member) if wanted else None
            if content is not None:
                yield f"{path}:{member.name}", member.name, _bounded(content)


class _Member(tarfile.TarInfo):
    """A member of an archive, whose long name or other properties tarfile would read whole into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isfile() and self.size > MAX_PROPERTIES:
            raise tarfile.ReadError(f"the header of a member has {self.size:,} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


def _bounded(file: IO[bytes]) -> bytes:
    """Return the content of a packed chunk, or its beginning, which is no whole one, if it is too long."""
    return file.read(MAX_CHUNK)


def _unpacked(data: bytes) -> bytes:
    with gzip.open(io.BytesIO(data)) as file:
        unpacked = file.read(MAX_CHUNK + 1)
    if len(unpacked) > MAX_CHUNK:
        raise TrainingDataError(f"more than {MAX_RECORDS:,} records: no game is that long")
    return unpacked


# --- records to games ---------------------------------------------------------------------------------------


def games_of(records: NDArray[np.void]) -> list[Columns]:
    """Return the games in a chunk's records: start, moves, how many of them are only history, and columns.

    Raises TrainingDataError for impossible positions and policies.
    """
    games: list[Columns] = []
    first = 0
    while first < len(records):
        game, prefix = _beginning(records[first])
        start = game.copy()
        for _ in range(prefix):
            start.pop()
        count = 1
        while True:
            following = records[first + count] if first + count < len(records) else None
            game.push_uci(_move_of(game, records[first + count - 1], following))
            if following is None or not _shows(game, following):
                break
            count += 1
        games.append(columns_of(start, game.moves(), prefix, records[first : first + count]))
        first += count
    return games


def _beginning(record: np.void) -> tuple[Game, int]:
    """Return a game that leads to a record's position, and how many of its moves are history."""
    fen = fen_of(record)
    steps = _history_steps(record)
    for back in range(steps, 0, -1):
        game = _replayed(record, fen, back)
        if game is not None:
            return game, back
    return Game(fen, True), 0


def _history_steps(record: np.void) -> int:
    """Return how many earlier positions a record shows, without copies of the oldest that fill gaps."""
    if int(record["input_format"]) in REPETITIONS_ONLY:
        return 0
    boards = boards_of(record, HISTORY)
    steps = 0
    while steps + 1 < HISTORY and boards[steps + 1].any() and (boards[steps + 1] != boards[steps]).any():
        steps += 1
    return steps


def _replayed(record: np.void, fen: str, back: int) -> Game | None:
    """Return the game from `back` plies earlier to the record's position.
    None if its moves cannot be reconstructed or the result does not match the record."""
    boards = boards_of(record, HISTORY)
    black = black_to_move(record)
    _, side, castling, _, rule50, _ = fen.split()
    placements = [placement_of(board, black=black) for board in boards[: back + 1]]
    mover = side if back % 2 == 0 else "wb"[side == "w"]
    # The later rights first: canonical formats show only positions with the same rights.
    for right in (castling, _rights_at_home(placements[back], castling)):
        for clock in (max(0, int(rule50) - back), 0):
            try:
                game = Game(f"{placements[back]} {mover} {right or '-'} - {clock} 1", True)
            except ValueError:
                continue
            if all(_push_to(game, placements[step]) for step in range(back - 1, -1, -1)) and _shows(
                game, record
            ):
                return game
    return None


def _rights_at_home(placement: str, castling: str) -> str:
    """Return all rights that the pieces on home squares permit, or else the later rights.
    The moves in between may have lost a right."""
    rows = placement.split("/")

    def squares(row: str) -> str:
        return "".join("." * int(letter) if letter.isdigit() else letter for letter in row)

    white, black = squares(rows[7]), squares(rows[0])
    found = [
        ("K", white[4] == "K" and white[7] == "R"),
        ("Q", white[4] == "K" and white[0] == "R"),
        ("k", black[4] == "k" and black[7] == "r"),
        ("q", black[4] == "k" and black[0] == "r"),
    ]
    return "".join(letter for letter, possible in found if possible) or castling


def _push_to(game: Game, placement: str) -> bool:
    """Play the move that leads to this placement of pieces; return False if there is none."""
    for move in game.legal_moves():
        game.push_uci(move)
        if game.fen().split()[0] == placement:
            return True
        game.pop()
    return False


def _shows(game: Game, record: np.void) -> bool:
    """Return True if the game is at the record's position: pieces, side, castling and 50-move counter."""
    fields, wanted = game.fen().split(), fen_of(record).split()
    in_960 = Game(" ".join(wanted), True).fen().split()
    return (*fields[:3], fields[4]) == (*in_960[:3], wanted[4])


def _move_of(game: Game, record: np.void, following: np.void | None) -> str:
    """Return a record's move: as recorded, else the one leading to the following record, else the best."""
    played = int(record["played_idx"])
    if played != NO_MOVE:
        return policy_move(game, played, transform_of(record))
    if following is not None:
        wanted = placement_of(boards_of(following, 1)[0], black=black_to_move(following))
        trial = game.copy()
        if _push_to(trial, wanted):
            return trial.moves()[-1]
    return policy_move(game, int(record["best_idx"]), transform_of(record))

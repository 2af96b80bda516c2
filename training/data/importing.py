# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts sources to shards. The output folder's journal lists the sources already read.

The same command resumes a killed run and skips them. Broken and changed sources are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.apps.games import Journal
from engine.apps.shards import SUFFIX, Shard, write_shard
from protocol.common.printing import failing_as
from training.config import DataSettings, TargetSettings
from training.data import labelled_games
from training.data.chunks import CHUNK_SUFFIXES, ChunkGames
from training.data.reading import table_of
from training.data.sources import KnownSources, Source, digest_of_file
from training.errors import TrainingError

JOURNAL = "import.jsonl"
GAMES_A_SHARD = 2000
"""Games of chunks per shard."""


@dataclass(slots=True)
class Imported:
    """Summary of an import. passed_over: sources already imported. broken: file -> error."""

    shards: int = 0
    games: int = 0
    positions: int = 0
    branches: int = 0
    bytes: int = 0
    passed_over: int = 0
    broken: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        positions = self.positions + self.branches
        return (
            f"{self.shards} shards: {self.games:,} games, {self.positions:,} positions and {self.branches:,} "
            f"beside them, {self.bytes / max(1, positions):.1f} bytes each; {self.passed_over} sources were "
            f"there already, {len(self.broken)} are broken"
        )


def import_sources(
    sources: Sequence[str],
    output: str,
    note: Callable[[str], None] = lambda text: None,
    progress: Callable[[str], None] = lambda text: None,
) -> Imported:
    """Convert files and folders to shards.

    note: called with each broken source, which is skipped. progress: called with each shard.
    Raises TrainingError for a missing source, one without games, and a foreign output folder; JournalError.
    """
    files = [file for source in map(Path, sources) for file in _files(source)]
    folder = Path(output)
    done = Imported()
    with Journal(folder / JOURNAL, {"journal": "wavefront training import"}) as journal:
        if journal.header.get("journal") != "wavefront training import":
            raise TrainingError(f"{folder / JOURNAL} is not an import's journal: choose another --output")
        known = KnownSources(journal.entries)
        new = [file for file in files if not known.has_file(file)]
        done.passed_over = len(files) - len(new)
        number = len(journal.entries)
        for sources_of_shard, shard in _shards(new, known, done, note):
            path = folder / f"{number:06d}{SUFFIX}"
            with failing_as(TrainingError, f"cannot write {path}"):
                write_shard(path, shard)
            journal.append({"shard": path.name, "sources": [source.entry() for source in sources_of_shard]})
            number += 1
            done.shards += 1
            done.games += shard.games
            done.positions += shard.positions
            done.branches += shard.branches
            done.bytes += path.stat().st_size
            progress(f"{path}: {shard.games:,} games, {shard.positions + shard.branches:,} positions")
    return done


def _files(source: Path) -> list[Path]:
    """Return a file, or the importable files in a folder, sorted. Raises TrainingError."""
    if not source.exists():
        raise TrainingError(f"{source}: no such file or folder")
    if not source.is_dir():
        return [source]
    endings = (labelled_games.SUFFIX, *CHUNK_SUFFIXES)
    found = sorted(path for path in source.rglob("*") if path.name.endswith(endings) and path.is_file())
    if not found:
        raise TrainingError(f"{source}: no file in it ends with {', '.join(endings)}")
    return found


def _shards(
    files: Sequence[Path], known: KnownSources, done: Imported, note: Callable[[str], None]
) -> Iterator[tuple[list[Source], Shard]]:
    """Yield shards with the sources that each one completes."""

    def broken(name: object, error: Exception) -> None:
        done.broken[str(name)] = str(error)
        note(f"{name}: {error}; left out")

    chunks = ChunkGames(known, broken)
    for file in files:
        if file.name.endswith(labelled_games.SUFFIX):
            try:
                source = Source.of_file(file, digest_of_file(file))
                shard = labelled_games.read_labelled_games(file)
                table_of(shard, DataSettings(), TargetSettings(), input_format=1)  # replays all games
                yield [source], shard
            except Exception as error:  # Files of unknown origin: none ends the import.
                broken(file, error)
            continue
        chunks.add(file)
        if chunks.games >= GAMES_A_SHARD:
            yield chunks.take()
    if chunks.games:
        yield chunks.take()

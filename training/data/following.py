# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds new shards in a run's folders and reads them in a thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import perf_counter

from engine.apps.shards import ShardError
from protocol.common.printing import reason
from training.config import DataSettings
from training.data.reading import ReadShard, ShardReader, shard_files
from training.errors import TrainingError

AT_ONCE = 8
"""Maximum shards added at once; their data is in memory twice meanwhile."""


@dataclass(frozen=True, slots=True)
class NewShards:
    """Result of a check. shards: new ones, read. leaving: shards of the run that new ones pushed out of the
    window. notes: messages for the log."""

    shards: Sequence[ReadShard]
    leaving: Collection[str]
    notes: Sequence[str]


class Follower:
    """Checks for shards every `follow_s`. Used by the run's thread only.
    The reader's thread replays games almost without holding the interpreter lock."""

    def __init__(self, data: DataSettings, reader: ShardReader, shards: Collection[str]) -> None:
        """shards: those already in the run."""
        self._data, self._reader = data, reader
        self._shards = set(shards)
        self._failed: dict[str, tuple[int, int]] = {}
        self._pool = ThreadPoolExecutor(1, "shard-reader")
        self._look: Future[NewShards] | None = None
        self._closing = Event()
        self._looked_at = perf_counter()

    def ready(self) -> bool:
        """Return True if `take` has a result. Start a check if one is due."""
        if self._look is None and perf_counter() - self._looked_at >= self._data.follow_s:
            self._look = self._pool.submit(self._scan, frozenset(self._shards))
        if self._look is None or not self._look.done():
            return False
        found = self._look.result()
        if found.shards or found.leaving or found.notes:
            return True
        self._look, self._looked_at = None, perf_counter()
        return False

    def take(self) -> NewShards:
        """Return the result of the check; its shards count as part of the run from now on."""
        assert self._look is not None
        found, self._look, self._looked_at = self._look.result(), None, perf_counter()
        self._shards.difference_update(found.leaving)
        self._shards.update(shard.file for shard in found.shards)
        return found

    def close(self) -> None:
        """End the running check after its current shard."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)

    # -- in the reader's thread ------------------------------------------------------------------------------

    def _scan(self, known: frozenset[str]) -> NewShards:
        notes: list[str] = []
        try:
            files = shard_files(self._data)
        except (TrainingError, OSError) as error:
            return NewShards((), (), [f"looking for new shards: {reason(error)}"])
        shards: list[ReadShard] = []
        for file in files:
            if file not in known and len(shards) < AT_ONCE and not self._closing.is_set():
                shard = self._read(file, notes)
                if shard is not None:
                    shards.append(shard)
        leaving = known - set(files) if self._data.window else ()
        return NewShards(shards, leaving, [*notes, *self._reader.complaints()])

    def _read(self, file: str, notes: list[str]) -> ReadShard | None:
        """Return a shard; None if it is empty, damaged or incomplete. It is re-read after it changes."""
        try:
            status = Path(file).stat()
            state = status.st_size, status.st_mtime_ns
            if self._failed.get(file) == state:
                return None
            self._failed[file] = state
            table = self._reader.read(file)
            if not len(table):
                return None
        except (ShardError, OSError) as error:
            notes.append(f"{file}: {reason(error)}; left out as long as it does not change")
            return None
        del self._failed[file]
        return ReadShard(file, table)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Joins self-play's files of single games to shards, since a shard of one game is mostly header.

A game's file is deleted once it is in a shard. After a crash in between, the next run deletes it.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from engine.apps.games.journal import JournalError
from engine.apps.selfplay.archive import Folder
from engine.apps.shards.shard import SUFFIX, ShardError, read_shard, write_shard
from engine.apps.shards.shard_games import shard_of
from protocol.common.printing import failing_as, reason

GAMES_PER_SHARD = 500

PACKERS = 4
"""Shards packed at once: compression takes most of the time, and no interpreter lock."""


class Packer:
    """Packs games in threads of its own, so that others can be written meanwhile. Used by one thread.
    Methods raise JournalError for a shard that cannot be read or written."""

    def __init__(self, folder: Folder, played: Collection[int]) -> None:
        """played: numbers of the games in the journal."""
        self._folder = folder
        self._games = [number for number in sorted(played) if folder.chunk(number).exists()]
        if self._games:
            self._delete_packed()
        self._maker = ThreadPoolExecutor(PACKERS, "shard-maker")
        self._making: list[Future[None]] = []

    def add(self, number: int) -> None:
        """Add a game whose file is written."""
        self._games.append(number)
        if len(self._games) >= GAMES_PER_SHARD:
            self._begin()

    def close(self) -> None:
        """Pack the remaining games."""
        with self._maker:
            self._begin()
            for making in self._making:
                making.result()

    def _begin(self) -> None:
        """Start to pack the games, if there are any, once a thread is free."""
        games, self._games = self._games, []
        if len(self._making) >= PACKERS:
            self._making.pop(0).result()
        if games:
            self._making.append(self._maker.submit(self._pack, games))

    def _pack(self, games: Collection[int]) -> None:
        files = [self._folder.chunk(number) for number in games]
        path = self._folder.training / f"games_{min(games):06d}{SUFFIX}"
        with failing_as(JournalError, f"cannot write {path}", ShardError):
            write_shard(path, shard_of([read_shard(file).columns for file in files], "games of self-play"))
            for file in files:
                file.unlink()

    def _delete_packed(self) -> None:
        """Delete the files of games that are in a shard, after a crash."""
        packed: set[int] = set()
        for path in self._folder.training.glob(f"*{SUFFIX}"):
            try:
                packed.update(read_shard(path).columns["number"].tolist())
            except (ShardError, OSError, KeyError) as error:
                raise JournalError(f"{path}: {reason(error)}; move it away to go on without it") from None
        for number in packed.intersection(self._games):
            self._folder.chunk(number).unlink()
            self._games.remove(number)

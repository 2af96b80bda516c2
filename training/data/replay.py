# SPDX-License-Identifier: GPL-3.0-or-later
"""Replays the games of a shard to selected positions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from engine._core import Game
from engine.apps.shards import Shard, uci_move


class ShardGames:
    """The games of a shard, each to be replayed on its own."""

    def __init__(self, shard: Shard) -> None:
        columns = shard.columns
        plies, prefix = columns["plies"].astype(np.int64), columns["prefix"].astype(np.int64)
        self._shard, self._fens = shard, shard.fens()
        self._moves = np.concatenate([[0], np.cumsum(plies)]).tolist()
        samples = np.concatenate([[0], np.cumsum(plies - prefix)])
        self._samples = samples.tolist()
        at = columns["branch_at"] if shard.branches else np.zeros(0, np.uint32)
        self._branches = np.searchsorted(at, samples).tolist()

    def __len__(self) -> int:
        return len(self._fens)

    def rows(self, number: int, wanted: Collection[int] | None = None) -> Iterator[tuple[int, Game]]:
        """Yield rows of a game, samples along it and branches, each with its position (default: all rows).

        The caller owns the positions. Raises ValueError for an illegal move.
        """
        columns, positions = self._shard.columns, self._shard.positions
        moves = columns["moves"][self._moves[number] : self._moves[number + 1]].tolist()
        first, after = self._samples[number], self._samples[number + 1]
        branches: dict[int, list[int]] = {}
        for branch in range(self._branches[number], self._branches[number + 1]):
            if wanted is None or positions + branch in wanted:
                branches.setdefault(int(columns["branch_at"][branch]), []).append(branch)
        asked = [row for row in range(first, after) if wanted is None or row in wanted or row in branches]
        if not asked:
            return
        prefix = len(moves) - (after - first)
        game = Game(self._fens[number], bool(columns["chess960"][number]))
        for ply in range(prefix + asked[-1] - first + 1):
            row = first + ply - prefix
            if ply >= prefix and (wanted is None or row in wanted):
                yield row, game.copy()
            for branch in branches.get(row, ()):
                other = game.copy()
                other.push_uci(uci_move(int(columns["branch_move"][branch])))
                yield positions + branch, other
            game.push_uci(uci_move(moves[ply]))


def games_at(shard: Shard, rows: Collection[int]) -> Iterator[tuple[int, Game]]:
    """Yield rows and their positions, in the order of the games. The caller owns the positions.

    The moves must be known to be legal.
    """
    games = ShardGames(shard)
    for number in range(len(games)):
        yield from games.rows(number, rows)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Tablebase results of a shard's positions with few pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine._core import Game, Tablebases
from engine.apps.shards import Shard
from protocol.common.folders import expanded
from training.data.replay import games_at
from training.errors import TrainingError

UNKNOWN = -128
DRAWN_AFTER = 100
"""Plies without a capture or pawn move that draw the game."""


def open_tablebases(folders: Sequence[str], note: Callable[[str], None]) -> Tablebases | None:
    """Open the tables in some folders; None without folders. Raises TrainingError if they have no tables."""
    if not folders:
        return None
    tables = Tablebases([expanded(folder) for folder in folders])
    if tables.missing_folders:
        raise TrainingError(f"tablebases: cannot read the folder {tables.missing_folders[0]}")
    if not tables.wdl_tables or not tables.dtz_tables:
        raise TrainingError(f"tablebases: no .rtbw and .rtbz files in {', '.join(folders)}")
    note(f"tablebases of up to {tables.most_men} men")
    return tables


def results(shard: Shard, boards: NDArray[np.uint64], tables: Tablebases) -> NDArray[np.int8]:
    """Return results [rows] for the side to move: 1 win, 0 draw, -1 loss with the 50-move clock, or UNKNOWN.
    boards: [rows, 8, 4] of `PackedPositions`."""
    occupied = np.bitwise_or.reduce(boards[:, 0], axis=1)
    men = np.unpackbits(occupied.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
    few = np.flatnonzero(men <= tables.most_men)
    found = np.full(len(boards), UNKNOWN, np.int8)
    for row, game in games_at(shard, set(few.tolist())):
        value = result_of(game, tables)
        if value is not None:
            found[row] = value
    return found


def result_of(game: Game, tables: Tablebases) -> int | None:
    """Return 1, 0 or -1 for the side to move, None if the tables do not have the position.

    A win is a draw if its next capture or pawn move is further away than the 50-move rule permits.
    """
    value = tables.probe_wdl(game)
    if value is None:
        return None
    if abs(value) < 2:
        return 0
    if game.rule50:
        distance = tables.probe_dtz(game)
        if distance is None:
            return None
        if abs(distance) + game.rule50 > DRAWN_AFTER:
            return 0
    return 1 if value > 0 else -1

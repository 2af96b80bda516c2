# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of training positions, as columns in memory.

Positions are packed. Value targets are final; policy targets are an engine's scores or a search's shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from training.data.packed import PackedPositions

NO_PLACE = 255
LISTED = 6
"""Maximum listed moves of a labelled position: five lines and the best move of a deeper search."""


@dataclass(frozen=True, slots=True)
class PositionTable:
    """n positions with m legal moves. Every column except move_start, moves, shares and prior has n rows.

    move_start: int64 [n + 1]; the moves of position i are move_start[i] to move_start[i + 1].
    moves: uint16 [m] policy indices. shares: float16 [m] shares of visits, for searched positions.
    listed: uint8 [n, 6] indices into a position's legal moves, 255 for none. listed_score: float32 [n, 6],
    their comparable centipawns. prior: uint8 [m], -log policy in sixteenths of a nat, valid if annotated
    (bool).
    searched: bool, True if shares are the policy target. best: uint8, index of the best move.
    wdl, next_wdl: float32 [n, 3] of the position and of the next plies. plies_left: float32, NaN if unknown.
    taken: float32, share of epochs that use the position.
    held_out: bool, for validation only. branch: bool, next to the game. keys: uint64.
    """

    boards: NDArray[np.uint64]
    masks: NDArray[np.uint64]
    repetitions: NDArray[np.uint8]
    rule50: NDArray[np.float32]
    move_start: NDArray[np.int64]
    moves: NDArray[np.uint16]
    shares: NDArray[np.float16]
    prior: NDArray[np.uint8]
    annotated: NDArray[np.bool_]
    listed: NDArray[np.uint8]
    listed_score: NDArray[np.float32]
    searched: NDArray[np.bool_]
    best: NDArray[np.uint8]
    wdl: NDArray[np.float32]
    next_wdl: NDArray[np.float32]
    plies_left: NDArray[np.float32]
    taken: NDArray[np.float32]
    held_out: NDArray[np.bool_]
    branch: NDArray[np.bool_]
    keys: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.rule50)

    @property
    def packed(self) -> PackedPositions:
        return PackedPositions(self.boards, self.masks, self.repetitions, self.rule50)

    @property
    def most_moves(self) -> int:
        """Return the maximum number of legal moves of a position."""
        return int(np.diff(self.move_start).max(initial=1))

    @property
    def bytes(self) -> int:
        """Return the size of all columns in bytes."""
        return sum(getattr(self, entry.name).nbytes for entry in fields(self))

    def rows(self, chosen: NDArray[Any]) -> Self:
        """Return the table of the chosen rows: ascending indices, or a bool for each row."""
        index = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        counts = np.diff(self.move_start)[index]
        start = np.concatenate([[0], np.cumsum(counts)])
        flat = np.repeat(self.move_start[index] - start[:-1], counts) + np.arange(start[-1])
        columns: dict[str, Any] = {
            entry.name: getattr(self, entry.name)[index]
            for entry in fields(self)
            if entry.name not in _RAGGED
        }
        columns |= {"move_start": start}
        columns |= {name: getattr(self, name)[flat] for name in ("moves", "shares", "prior")}
        return type(self)(**columns)

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Join at least one table, in order."""
        tables = list(parts)
        columns: dict[str, Any] = {
            entry.name: np.concatenate([getattr(table, entry.name) for table in tables])
            for entry in fields(cls)
            if entry.name != "move_start"
        }
        before = np.cumsum([0] + [len(table.moves) for table in tables])
        starts = [table.move_start[:-1] + first for table, first in zip(tables, before[:-1], strict=True)]
        columns["move_start"] = np.concatenate([*starts, before[-1:]]).astype(np.int64)
        return cls(**columns)


_RAGGED = ("move_start", "moves", "shares", "prior")

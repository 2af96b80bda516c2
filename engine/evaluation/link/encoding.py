# SPDX-License-Identifier: GPL-3.0-or-later
"""Encoding of games and of collected batches for the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine._core import Batch, Game, encode, pack
from protocol.batch import POSITION_DTYPE, PositionBatch

COPIED_POSITIONS = 64
"""Batches up to this size are copied: that takes less time than to expose the core's memory to numpy."""

HistoryFill = Literal["no", "fen_only", "always"]
"""Filling of the positions before the start (lc0's option HistoryFill; default: fen_only). no: empty.
fen_only: the start position, but empty for the initial position of chess. always: the start position."""


def encode_games(
    games: Sequence[Game], *, input_format: int, history_fill: HistoryFill = "fen_only"
) -> tuple[PositionBatch, NDArray[np.int8]]:
    """Encode the games' current positions for a network of the given input format.

    Returns the batch, its moves in the order of Game.legal_moves(), and the board transform of each position
    (int8 [n], 0 to 7). Raises ValueError for an input format that lc0 does not have.
    """
    positions, transforms, move_offsets, moves = encode(games, input_format, history_fill)
    records = positions.reshape(-1).view(POSITION_DTYPE)
    return PositionBatch(positions=records, move_offsets=move_offsets, moves=moves), transforms


def position_batch(batch: Batch | PositionBatch) -> PositionBatch:
    """Return a collected batch as arrays for the wire. A PositionBatch is returned unchanged.

    Arrays of a large batch are views of its memory, valid until it is applied or cancelled.
    """
    if isinstance(batch, PositionBatch):
        return batch
    if batch.size > COPIED_POSITIONS:
        return PositionBatch(np.frombuffer(batch.positions, POSITION_DTYPE), batch.move_offsets, batch.moves)
    return _packed([batch])


def joined_batches(batches: Sequence[Batch | PositionBatch]) -> PositionBatch:
    """Return at least one batch as one for the wire, in order. See `position_batch`."""
    collected = [batch for batch in batches if isinstance(batch, Batch)]
    if len(batches) == 1 or len(collected) < len(batches):
        return PositionBatch.concatenate([position_batch(batch) for batch in batches])
    return _packed(collected)


def _packed(batches: Sequence[Batch]) -> PositionBatch:
    positions, move_offsets, moves = pack(batches)
    return PositionBatch(
        np.frombuffer(positions, POSITION_DTYPE),
        np.frombuffer(move_offsets, np.uint32),
        np.frombuffer(moves, np.uint16),
    )

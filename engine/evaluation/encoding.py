# SPDX-License-Identifier: GPL-3.0-or-later
"""Games, and what a search has collected, as batches of positions for the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine._core import Batch, Game, encode
from protocol.batch import POSITION_DTYPE, PositionBatch

COPIED_POSITIONS = 64
"""Up to so many positions are copied: that takes less time than to show the core's memory to numpy."""

HistoryFill = Literal["no", "fen_only", "always"]
"""What stands in for positions before the start of a game: nothing; the start position, but nothing for the
initial position of chess; or always the start position (lc0's option HistoryFill, by default fen_only)."""


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
    """What a search has collected as the arrays that travel. Those of a large batch are its own memory: valid
    until it is applied or cancelled. Returns a batch of encoded games as it is."""
    if isinstance(batch, PositionBatch):
        return batch
    if batch.size > COPIED_POSITIONS:
        return PositionBatch(np.frombuffer(batch.positions, POSITION_DTYPE), batch.move_offsets, batch.moves)
    positions, move_offsets, moves = batch.packed()
    return PositionBatch(
        np.frombuffer(positions, POSITION_DTYPE),
        np.frombuffer(move_offsets, np.uint32),
        np.frombuffer(moves, np.uint16),
    )

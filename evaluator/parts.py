"""Cutting batches of positions into parts, and putting parts together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocol.batch import PositionBatch


def cut(batch: PositionBatch, start: int, stop: int) -> PositionBatch:
    """Positions start to stop of a batch, as a batch of its own that shares its memory."""
    first, last = batch.move_offsets[start], batch.move_offsets[stop]
    return PositionBatch(
        positions=batch.positions[start:stop],
        move_offsets=batch.move_offsets[start : stop + 1] - first,
        moves=batch.moves[first:last],
    )


def joined(parts: Sequence[PositionBatch]) -> PositionBatch:
    """One batch of several. A single one is passed on as it is, the others are copied."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.move_offsets) for part in parts])
    offsets = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, out=offsets[1:])
    return PositionBatch(
        positions=np.concatenate([part.positions for part in parts]),
        move_offsets=offsets,
        moves=np.concatenate([part.moves for part in parts]),
    )

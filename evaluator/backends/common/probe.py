# SPDX-License-Identifier: GPL-3.0-or-later
"""Synthetic positions for checking and timing backends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocol.batch import PLANES, POSITION_DTYPE, PositionBatch


def probe_batch(count: int, seed: int = 0) -> PositionBatch:
    """Return synthetic positions with about the density of real ones, each with the same 35 moves."""
    rng = np.random.default_rng(seed)
    positions = np.zeros(count, POSITION_DTYPE)
    sparse = rng.integers(0, 2**64, (3, count, PLANES), dtype=np.uint64)
    positions["planes"] = sparse[0] & sparse[1] & sparse[2]
    positions["planes"][:, 104:] = 0
    positions["planes"][:, [109, 111]] = 2**64 - 1
    positions["rule50"] = rng.integers(0, 50, count)
    moves = np.sort(rng.choice(1858, 35, replace=False)).astype(np.uint16)
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(len(moves))
    return PositionBatch(positions, offsets, np.tile(moves, count))


def uneven_batch(moves: Sequence[int], seed: int = 0) -> PositionBatch:
    """Return synthetic positions with different moves. moves: number of legal moves of each."""
    positions = probe_batch(len(moves), seed).positions
    rng = np.random.default_rng(seed)
    chosen = [np.sort(rng.choice(1858, number, replace=False)).astype(np.uint16) for number in moves]
    return PositionBatch(positions, np.cumsum([0, *moves], dtype=np.uint32), np.concatenate(chosen))

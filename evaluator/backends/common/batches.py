# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversions shared by backends: masks to planes, policy to legal logits, values to win, draw and loss, and
the option `buckets`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.common.base import BackendError
from protocol.batch import PLANES, EvaluationBatch, PositionBatch

RULE50_PLANE = 109
"""The only plane whose values are not 0 and 1."""


def mask_bits(positions: NDArray[np.void]) -> NDArray[np.uint8]:
    """Return uint8 [n, 112, 64] of zeros and ones: element [i, p, s] is bit s of mask p of position i."""
    masks = np.ascontiguousarray(positions["planes"])
    octets = masks.view(np.uint8).reshape(len(positions), PLANES, 8)
    return np.unpackbits(octets, axis=2, bitorder="little")


def expand_planes(positions: NDArray[np.void]) -> NDArray[np.float32]:
    """Return the input of an lc0 network: POSITION_DTYPE [n] -> float32 [n, 112, 64]."""
    planes = mask_bits(positions).astype(np.float32)
    planes[:, RULE50_PLANE] *= positions["rule50"][:, None]
    return planes


def legal_logits(policy: NDArray[np.float32], batch: PositionBatch) -> NDArray[np.float32]:
    """Return the logits of the batch's legal moves: float32 [n, 1858] -> float32 [m]."""
    counts = batch.move_offsets[1:].astype(np.int64) - batch.move_offsets[:-1]
    rows = np.repeat(np.arange(len(batch)), counts)
    result: NDArray[np.float32] = policy[rows, batch.moves].astype(np.float32, copy=False)
    return result


def wdl_of_tanh(value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert values without draws to win, draw and loss: float32 [n] in -1..1 -> float32 [n, 3]."""
    return np.stack([(1 + value) / 2, np.zeros_like(value), (1 - value) / 2], axis=1).astype(np.float32)


def evaluation(
    batch: PositionBatch,
    policy: NDArray[np.float32],
    value: NDArray[np.float32],
    moves_left: NDArray[np.float32] | None = None,
) -> EvaluationBatch:
    """Return a network's outputs as the result for a batch.

    policy [n, 1858]; value [n, 3] (W, D, L) or [n, 1] (tanh); moves_left [n, 1] or None.
    """
    wdl = value if value.shape[1] == 3 else wdl_of_tanh(value[:, 0])
    return EvaluationBatch(
        logits=legal_logits(policy, batch),
        wdl=np.ascontiguousarray(wdl, dtype=np.float32),
        moves_left=np.zeros(len(batch), np.float32)
        if moves_left is None
        else np.ascontiguousarray(moves_left[:, 0], dtype=np.float32),
    )


def batch_sizes(text: str) -> tuple[int, ...]:
    """Parse "1+8+64" into ascending sizes; "" gives none. Raises BackendError."""
    try:
        sizes = sorted({int(size) for size in text.split("+") if size})
    except ValueError:
        sizes = [0]
    if sizes and sizes[0] < 1:
        raise BackendError(f"buckets {text!r}: write sizes from 1, as in 1+8+64")
    return tuple(sizes)

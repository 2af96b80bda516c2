# SPDX-License-Identifier: GPL-3.0-or-later
"""The tensor maps of the kernels for Hopper: the boxes of their operands that the TMA loads."""

from __future__ import annotations

from evaluator.gpu.driver.device import Box
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.hopper import BLOCK_K, BLOCK_M, HEAD_DEPTH, HEADS_OF_A_TILE
from evaluator.gpu.plan.program import Buffer, TensorMap


def rows_map(
    a: Buffer, rows: int, width: int, stride: int, precision: Precision, block_m: int = BLOCK_M
) -> TensorMap:
    """Boxes of block_m rows and BLOCK_K columns of activations. stride: elements from row to row."""
    box = Box(precision, (width, rows), strides=(stride * precision.bytes,), shape=(BLOCK_K, block_m))
    return TensorMap(a, box)


def weights_map(weights: Buffer, n: int, k: int, block_n: int, precision: Precision) -> TensorMap:
    """Boxes of block_n rows and BLOCK_K columns of weights [n, k]; n is a multiple of 32.

    Of each 32 rows, the box has row 8 q + 2 j + e at place 8 j + 2 q + e (q, j below 4, e below 2): the
    dimensions after k are e, q, j and the 32s.
    """
    row = k * precision.bytes
    box = Box(
        precision,
        sizes=(k, 2, 4, 4, n // 32),
        strides=(row, 8 * row, 2 * row, 32 * row),
        shape=(BLOCK_K, 2, 4, 4, block_n // 32),
    )
    return TensorMap(weights, box)


def heads_map(weights: Buffer, heads: int, k: int, precision: Precision) -> TensorMap:
    """Boxes of BLOCK_K columns of what makes q, k and v of HEADS_OF_A_TILE heads, one head after the other,
    from weights [3, heads, HEAD_DEPTH, k]."""
    row = k * precision.bytes
    box = Box(
        precision,
        sizes=(k, HEAD_DEPTH, 3, heads),
        strides=(row, heads * HEAD_DEPTH * row, HEAD_DEPTH * row),
        shape=(BLOCK_K, HEAD_DEPTH, 3, HEADS_OF_A_TILE),
    )
    return TensorMap(weights, box)


def logits_map(logits: Buffer, boards: int, precision: Precision) -> TensorMap:
    """Boxes of one of the boards of logits [boards, 64 queries, 64 keys]."""
    box = Box(precision, (64, 64 * boards), strides=(64 * precision.bytes,), shape=(64, 64))
    return TensorMap(logits, box)

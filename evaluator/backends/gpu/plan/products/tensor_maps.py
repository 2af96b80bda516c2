# SPDX-License-Identifier: GPL-3.0-or-later
"""Tensor maps of the Hopper kernels: the boxes of their operands that the TMA loads."""

from __future__ import annotations

from evaluator.backends.gpu.driver.device import Box
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.hopper import BLOCK_K, BLOCK_M, HEAD_DEPTH, HEADS_OF_A_TILE
from evaluator.backends.gpu.plan.program import Buffer, TensorMap


def rows_map(a: Buffer, rows: int, width: int, stride: int, precision: Precision) -> TensorMap:
    """Return boxes of BLOCK_M rows and BLOCK_K columns of activations. stride: elements between rows."""
    box = Box(precision, (width, rows), strides=(stride * precision.bytes,), shape=(BLOCK_K, BLOCK_M))
    return TensorMap(a, box)


def weights_map(weights: Buffer, n: int, k: int, block_n: int, precision: Precision) -> TensorMap:
    """Return boxes of block_n rows and BLOCK_K columns of weights [n, k]; n is a multiple of 32.

    Of each 32 rows, the box has row 8 q + 2 j + e at place 8 j + 2 q + e (q, j below 4, e below 2). The
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
    """Return boxes of BLOCK_K columns of the weights for q, k and v of HEADS_OF_A_TILE heads, one head after
    the other, from weights [3, heads, HEAD_DEPTH, k]."""
    row = k * precision.bytes
    box = Box(
        precision,
        sizes=(k, HEAD_DEPTH, 3, heads),
        strides=(row, heads * HEAD_DEPTH * row, HEAD_DEPTH * row),
        shape=(BLOCK_K, HEAD_DEPTH, 3, HEADS_OF_A_TILE),
    )
    return TensorMap(weights, box)


def logits_map(logits: Buffer, boards: int, precision: Precision) -> TensorMap:
    """Return boxes of one board of logits [boards, 64 queries, 64 keys]."""
    box = Box(precision, (64, 64 * boards), strides=(64 * precision.bytes,), shape=(64, 64))
    return TensorMap(logits, box)

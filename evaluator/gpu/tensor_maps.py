"""What kernels/gemm_hopper.hip asks of the copy engine: the boxes of its two operands."""

from __future__ import annotations

from evaluator.gpu.hopper import BLOCK_K, BLOCK_M
from evaluator.gpu.program import Buffer, TensorMap
from evaluator.gpu.target import Precision


def rows_map(a: Buffer, rows: int, width: int, stride: int, precision: Precision) -> TensorMap:
    """Boxes of BLOCK_M rows and BLOCK_K columns of activations. stride: elements from row to row."""
    return TensorMap(
        a, precision, sizes=(width, rows), strides=(stride * precision.bytes,), box=(BLOCK_K, BLOCK_M)
    )


def weights_map(weights: Buffer, n: int, k: int, block_n: int, precision: Precision) -> TensorMap:
    """Boxes of block_n rows and BLOCK_K columns of weights [n, k]; n is a multiple of 32.

    Of each 32 rows, the box has row 8 q + 2 j + e at place 8 j + 2 q + e (q, j below 4, e below 2): the
    dimensions after k are e, q, j and the 32s.
    """
    row = k * precision.bytes
    return TensorMap(
        weights,
        precision,
        sizes=(k, 2, 4, 4, n // 32),
        strides=(row, 8 * row, 2 * row, 32 * row),
        box=(BLOCK_K, 2, 4, 4, block_n // 32),
    )

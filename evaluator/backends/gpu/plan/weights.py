# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights in the kernels' form: rows padded to whole chunks, in the storage precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.target import Precision
from evaluator.network.chunks import by_blocks
from evaluator.network.spec import FloatArray

RULE50_PLANE = 109
RULE50_DIVISOR = 64
"""The plane that counts to 99 has weights a hundredth of the others', many of them subnormal in fp16. These
have few bits, and gfx90a's matrix unit flushes them to zero. kernels/expand.hip divides the plane by this
power of two, and the weights are multiplied by it, which is exact."""

_HALF_INFINITY = 0x7C00


class WeightError(Exception):
    """A weight cannot be stored in the requested precision."""


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def stored(values: FloatArray, precision: Precision) -> NDArray[Any]:
    """Convert any shape to float16, bfloat16 (as uint16) or float32. Raises WeightError if a finite value
    would become infinite."""
    match precision:
        case Precision.FP32:
            return np.ascontiguousarray(values, np.float32)
        case Precision.FP16:
            return _converted(values, np.dtype(np.float16), _to_half)
        case Precision.BF16:
            return _converted(values, np.dtype(np.uint16), _to_bfloat)


def _converted(
    values: FloatArray, dtype: np.dtype[Any], convert: Callable[[FloatArray, NDArray[Any]], None]
) -> NDArray[Any]:
    """Return a new array filled by `convert`."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    result = np.empty(len(flat), dtype)
    by_blocks(len(flat), lambda block: convert(flat[block], result[block]))
    return result.reshape(values.shape)


def _to_half(values: FloatArray, out: NDArray[Any]) -> None:
    with np.errstate(over="ignore"):
        out[:] = values
    # Without the sign, infinity has the largest bits; isfinite takes as long as the conversion.
    if len(out) and int((out.view(np.uint16) & np.uint16(0x7FFF)).max()) >= _HALF_INFINITY:
        largest = float(np.abs(values).max())
        raise WeightError(f"a weight of {largest:.3g} does not fit into fp16; use bf16 or fp32")


def _to_bfloat(values: FloatArray, out: NDArray[Any]) -> None:
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # ties to even
    out[:] = rounded >> np.uint32(16)


def floats(values: NDArray[Any], precision: Precision) -> FloatArray:
    """Return an array of `stored` as float32."""
    if precision is Precision.BF16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def matrix(values: FloatArray, precision: Precision) -> NDArray[Any]:
    """[out, in] -> stored [out padded, in padded], zeros in the padding."""
    return stored(padded(values, precision.chunk, precision.chunk), precision)


def sums_of_rows(weights: NDArray[Any], precision: Precision) -> FloatArray:
    """[out, in] stored -> float32 [out]: the sums of each output's weights, as stored."""
    sums: FloatArray = floats(weights, precision).sum(axis=1, dtype=np.float64).astype(np.float32)
    return sums


def vector(values: FloatArray, precision: Precision) -> FloatArray:
    """[out] -> float32 [out padded]: biases stay float32."""
    result = np.zeros(round_up(len(values), precision.chunk), np.float32)
    result[: len(values)] = values
    return result


def padded(values: FloatArray, rows: int, columns: int) -> FloatArray:
    """Pad [r, c] with zeros to multiples; returns the array itself if no padding is needed."""
    if values.shape[0] % rows == 0 and values.shape[1] % columns == 0:
        return values
    result = np.zeros((round_up(values.shape[0], rows), round_up(values.shape[1], columns)), np.float32)
    result[: values.shape[0], : values.shape[1]] = values
    return result


def of_planes(weights: FloatArray) -> FloatArray:
    """Convert a layer's weights [out, planes and more, ...] for the planes to those for the planes of
    kernels/expand.hip."""
    result = weights.astype(np.float32)
    result[:, RULE50_PLANE] *= RULE50_DIVISOR
    return result


def convolution(weights: FloatArray, precision: Precision) -> NDArray[Any]:
    """[out, in, k, k] -> stored [out padded, k * k * in padded], in the order tap * channels + channel."""
    outputs, inputs, size, _ = weights.shape
    channels = round_up(inputs, precision.chunk)
    taps = np.zeros((outputs, size * size, channels), np.float32)
    taps[:, :, :inputs] = weights.reshape(outputs, inputs, size * size).transpose(0, 2, 1)
    return matrix(taps.reshape(outputs, -1), precision)


FRAGMENT_ROWS, FRAGMENT_K = 16, 32
"""Shape of an MFMA fragment (SPAN in kernels/swizzled.h)."""


def fragments(weights: NDArray[Any]) -> NDArray[Any]:
    """[out, in] of 16-bit elements, in a multiple of FRAGMENT_K -> [out / 16][in / 32][lane][8]: the elements
    of 16 rows and 32 columns that the 64 lanes of a wave hold, zeros in padded rows."""
    outputs, inputs = weights.shape
    result = np.zeros((round_up(outputs, FRAGMENT_ROWS), inputs), weights.dtype)
    result[:outputs] = weights
    lanes = result.reshape(-1, FRAGMENT_ROWS, inputs // FRAGMENT_K, 4, 8).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(lanes)


def head_rows(weights: FloatArray, heads: int, depth: int) -> FloatArray:
    """[heads * d, ...] -> [heads * depth, ...]: each head's rows padded with zeros to `depth`; the array
    itself if no padding is needed."""
    own = weights.shape[0] // heads
    if own == depth:
        return weights
    result = np.zeros((heads, depth, *weights.shape[1:]), np.float32)
    result[:, :own] = weights.reshape(heads, own, *weights.shape[1:])
    return result.reshape(heads * depth, *weights.shape[1:])


def after_flatten(weights: FloatArray, precision: Precision, *, channels_first: bool) -> NDArray[Any]:
    """[out, 64 * C] of a dense layer on a flattened board -> stored [out padded, 64 * C padded], in the
    kernels' order square * C padded + channel. channels_first: the file's order is channel * 64 + square."""
    outputs, inputs = weights.shape
    channels = inputs // 64
    if channels_first:
        squares = weights.reshape(outputs, channels, 64).transpose(0, 2, 1)
    else:
        squares = weights.reshape(outputs, 64, channels)
    result = np.zeros((outputs, 64, round_up(channels, precision.chunk)), np.float32)
    result[:, :, :channels] = squares
    return matrix(result.reshape(outputs, -1), precision)

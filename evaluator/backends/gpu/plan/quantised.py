# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights of 8 and 4 bits.

`rounded_network` rounds the weights of a network's encoders once. The self-check's reference, the plain
elements for large batches, and the codes for small ones all use these. `pack` recovers the codes of a rounded
matrix in the layout of kernels/packed.h. So a layer whose weights were not rounded, or in other groups than
its packed form, is never stored as codes.

A weight is code * scale with |code| at most 127 or 7. int8 has a scale per row of a matrix (an output): its
largest weight over 127. int4 has one per 32 weights of a row, chosen among a few by squared error. On the
shipped network this has half the error of scaling by the largest weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.target import MatrixUnit
from evaluator.backends.gpu.plan.weights import round_up
from evaluator.network.spec import (
    Attention,
    AttentionBody,
    Dense,
    EncoderLayer,
    FloatArray,
    NetworkSpec,
    Smolgen,
)

GROUP = 32
"""Weights along k that share an int4 scale; PACKED_GROUP of kernels/packed.h."""

_INT4_SCALES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Candidate scales relative to the one for the largest weight."""

_BLOCK_ROWS = 256
"""Rows rounded at once, so that intermediate values stay in the CPU's cache."""

_ORDER_OF_MMA_SYNC = np.array([0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15])
"""Order of 16 codes along k that puts the codes of a lane next to each other."""


class WeightFormat(Enum):
    """Storage format of the encoders' weights, if different from the rest."""

    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        return 8 if self is WeightFormat.INT8 else 4

    @property
    def largest(self) -> int:
        """The largest magnitude of a code."""
        return 127 if self is WeightFormat.INT8 else 7

    def group(self, k: int) -> int:
        """Return the number of weights in a row of k that share a scale."""
        return k if self is WeightFormat.INT8 else GROUP


@dataclass(frozen=True, slots=True)
class Packed:
    """codes: uint8 [n, bytes of a row, whole chunks of 16]. scales: float32 [n] (int8) or float16 [k / GROUP,
    n] (int4)."""

    format: WeightFormat
    codes: NDArray[np.uint8]
    scales: NDArray[Any]


def rounded(weights: FloatArray, form: WeightFormat) -> FloatArray:
    """Round [n, k] to the format; unchanged if k is not whole groups."""
    n, k = weights.shape
    if k % form.group(k):
        return weights
    result = np.empty((n, k), np.float32)
    for at in range(0, n, _BLOCK_ROWS):
        block = weights[at : at + _BLOCK_ROWS].reshape(-1, k // form.group(k), form.group(k))
        result[at : at + _BLOCK_ROWS] = _rounded(block, form).reshape(-1, k)
    return result


def _rounded(values: FloatArray, form: WeightFormat) -> FloatArray:
    largest = np.abs(values).max(axis=-1, keepdims=True) / np.float32(form.largest)
    if form is WeightFormat.INT8:
        nearest: FloatArray = _codes(values, largest, form) * largest
        return nearest
    best, least = values, np.full_like(largest, np.inf)
    for part in _INT4_SCALES:
        scales = (largest * np.float32(part)).astype(np.float16).astype(np.float32)
        candidate = _codes(values, scales, form) * scales
        error = np.square(candidate - values).sum(axis=-1, keepdims=True)
        best = np.where(error < least, candidate, best)
        least = np.minimum(least, error)
    return best


def _codes(values: FloatArray, scales: FloatArray, form: WeightFormat) -> FloatArray:
    codes: FloatArray = np.rint(values / np.where(scales > 0, scales, np.float32(1)))
    codes.clip(-form.largest, form.largest, out=codes)
    return codes


def rounded_network(network: NetworkSpec, form: WeightFormat) -> NetworkSpec:
    """Return the network with the weights of its encoders' products rounded; a residual network does not
    change."""
    if not isinstance(network.body, AttentionBody):
        return network
    shared: dict[int, FloatArray] = {}

    def matrix(weights: FloatArray) -> FloatArray:
        # The last matrix of smolgen is one array shared by all layers.
        if id(weights) not in shared:
            shared[id(weights)] = rounded(weights, form)
        return shared[id(weights)]

    encoders = tuple(_rounded_encoder(layer, matrix) for layer in network.body.encoders)
    return replace(network, body=replace(network.body, encoders=encoders))


def _rounded_encoder(layer: EncoderLayer, matrix: Callable[[FloatArray], FloatArray]) -> EncoderLayer:
    def dense(part: Dense) -> Dense:
        return replace(part, weights=matrix(part.weights))

    def smolgen(part: Smolgen) -> Smolgen:
        return replace(
            part,
            compress=matrix(part.compress),
            dense1=dense(part.dense1),
            dense2=dense(part.dense2),
            position_weights=matrix(part.position_weights),
        )

    def attention(part: Attention) -> Attention:
        return replace(
            part,
            q=dense(part.q),
            k=dense(part.k),
            v=dense(part.v),
            output=dense(part.output),
            smolgen=None if part.smolgen is None else smolgen(part.smolgen),
        )

    ffn = replace(layer.ffn, dense1=dense(layer.ffn.dense1), dense2=dense(layer.ffn.dense2))
    return replace(layer, attention=attention(layer.attention), ffn=ffn)


def pack(weights: NDArray[np.float16], form: WeightFormat, unit: MatrixUnit) -> Packed | None:
    """Return the codes of [n, k], n a multiple of 8, for a target with this matrix unit; None if the weights
    are not code * scale in half precision."""
    n, k = weights.shape
    group = form.group(k)
    if k % group:
        return None
    chunk = 128 // form.bits
    codes = np.zeros((n, round_up(k, chunk)), np.uint8)
    scales = np.zeros((n, k // group), np.float32)
    for at in range(0, n, _BLOCK_ROWS):
        values = weights[at : at + _BLOCK_ROWS].astype(np.float32).reshape(-1, k // group, group)
        guess = np.abs(values).max(axis=-1, keepdims=True) / np.float32(form.largest)
        found = _codes(values, guess, form)
        # The least squares scale over all elements, because each was rounded to half precision.
        squares = np.square(found).sum(axis=-1)
        products = (found * values).sum(axis=-1)
        exact = np.where(squares > 0, products / np.maximum(squares, 1), 0).astype(np.float32)
        if form is WeightFormat.INT4:
            exact = exact.astype(np.float16).astype(np.float32)
        off = np.abs(values - found * exact[:, :, np.newaxis])
        if (off > np.maximum(_TOLERANCE * guess, _SMALLEST_HALF)).any():
            return None
        codes[at : at + _BLOCK_ROWS, :k] = found.reshape(-1, k) + (form.largest + 1)
        scales[at : at + _BLOCK_ROWS] = exact
    codes[:, k:] = form.largest + 1
    ordered = _ordered(codes, form, unit)
    if form is WeightFormat.INT8:
        return Packed(form, ordered, np.ascontiguousarray(scales[:, 0]))
    return Packed(form, ordered, np.ascontiguousarray(scales.T.astype(np.float16)))


_TOLERANCE = 0.2
"""Maximum distance of a weight from its code, in steps between codes. Half precision is off by at most 1/16
of a step; weights that were not rounded to codes by up to a half."""

_SMALLEST_HALF = np.float32(2.0**-24)


def _ordered(codes: NDArray[np.uint8], form: WeightFormat, unit: MatrixUnit) -> NDArray[np.uint8]:
    """[n, k] codes, one per byte -> [n, k * bits / 8], in the order of kernels/packed.h."""
    n, k = codes.shape
    if unit is MatrixUnit.MMA_SYNC:
        codes = codes.reshape(n, k // 16, 16)[:, :, _ORDER_OF_MMA_SYNC].reshape(n, k)
    if form is WeightFormat.INT4:
        quads = codes.reshape(n, k // 4, 4)
        codes = (quads[:, :, :2] | quads[:, :, 2:] << np.uint8(4)).reshape(n, k // 2)
    return np.ascontiguousarray(codes)

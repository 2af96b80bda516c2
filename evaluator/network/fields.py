# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads arrays of known shape from a message, with errors that contain the field's full name."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evaluator.network.errors import NetworkError
from evaluator.network.schema import Message
from evaluator.network.spec import Activation, ConvBlock, Dense, FloatArray, LayerNorm
from evaluator.network.tensors import decode_layer, layer_encoding

_BATCH_NORM_EPSILON = 1e-5


class Fields:
    """A message and its path in the file, e.g. `weights.encoder[3].mha`.

    encodings: collects the names of the weight encodings; shared with children.
    """

    def __init__(self, message: Message, path: str, encodings: set[str] | None = None) -> None:
        self.message = message
        self.path = path
        self.encodings: set[str] = set() if encodings is None else encodings

    def name(self, field: str) -> str:
        return f"{self.path}.{field}"

    def has(self, field: str) -> bool:
        """Return True if the field is present and, if it is a Layer, has values."""
        if not self.message.HasField(field):
            return False
        value = getattr(self.message, field)
        return not hasattr(value, "params") or len(value.params) > 0

    def child(self, field: str) -> Fields:
        if not self.message.HasField(field):
            raise NetworkError(f"{self.name(field)}: missing")
        return Fields(getattr(self.message, field), self.name(field), self.encodings)

    def children(self, field: str) -> list[Fields]:
        return [
            Fields(message, f"{self.name(field)}[{i}]", self.encodings)
            for i, message in enumerate(getattr(self.message, field))
        ]

    def values(self, field: str) -> FloatArray:
        """Return a Layer of any length, flat. Raises NetworkError if it is missing or empty."""
        if not self.has(field):
            raise NetworkError(f"{self.name(field)}: missing")
        layer = getattr(self.message, field)
        self.encodings.add(layer_encoding(layer, self.name(field)).name)
        return decode_layer(layer, self.name(field))

    def array(self, field: str, *shape: int) -> FloatArray:
        """Return a Layer of a known shape. Raises NetworkError for another number of values."""
        values = self.values(field)
        if len(values) != math.prod(shape):
            dimensions = " x ".join(map(str, shape))
            product = f" ({dimensions})" if len(shape) > 1 else ""
            raise NetworkError(
                f"{self.name(field)}: {len(values)} values, expected {math.prod(shape)}{product}"
            )
        return values.reshape(shape)

    def dense(self, prefix: str, inputs: int, activation: Activation = Activation.NONE) -> Dense:
        """Return `{prefix}_w` [out, inputs] and `{prefix}_b` [out]; out is the number of biases."""
        biases = self.values(f"{prefix}_b")
        return Dense(self.array(f"{prefix}_w", len(biases), inputs), biases, activation)

    def norm(self, prefix: str, width: int, epsilon: float) -> LayerNorm:
        return LayerNorm(self.array(f"{prefix}_gammas", width), self.array(f"{prefix}_betas", width), epsilon)

    def convolution(self, inputs: int, kernel: int, activation: Activation = Activation.NONE) -> ConvBlock:
        """Return this ConvBlock message with the batch norm folded in.

        y = gamma (w x + b - mean) / sqrt(variance + 1e-5) + beta; the file's `bn_stddivs` is the variance.
        """
        shape = (inputs, kernel, kernel)
        values = self.values("weights")
        if self.has("biases"):
            outputs = len(self.values("biases"))
        elif self.has("bn_means"):
            outputs = len(self.values("bn_means"))
        else:
            outputs = max(1, len(values) // math.prod(shape))
        weights = self.array("weights", outputs, *shape).astype("f8")
        biases = self._per_channel("biases", outputs, 0.0)
        if self.has("bn_means") or self.has("bn_stddivs"):
            means = self.array("bn_means", outputs).astype("f8")
            variances = self.array("bn_stddivs", outputs).astype("f8")
            if variances.min() + _BATCH_NORM_EPSILON <= 0:
                raise NetworkError(f"{self.name('bn_stddivs')}: a variance is negative; the file is damaged")
            scale = self._per_channel("bn_gammas", outputs, 1.0) / (variances + _BATCH_NORM_EPSILON) ** 0.5
            weights = weights * scale[:, None, None, None]
            biases = scale * (biases - means) + self._per_channel("bn_betas", outputs, 0.0)
        return ConvBlock(self._float32(weights), self._float32(biases), activation)

    def _per_channel(self, field: str, outputs: int, default: float) -> NDArray[np.float64]:
        if self.has(field):
            return self.array(field, outputs).astype("f8")
        return np.full(outputs, default)

    def _float32(self, values: NDArray[np.float64]) -> FloatArray:
        with np.errstate(over="ignore"):
            result: FloatArray = np.ascontiguousarray(values, dtype=np.float32)
        if not np.isfinite(result).all():
            raise NetworkError(f"{self.path}: folding the batch norm overflows; the file is damaged")
        return result

# SPDX-License-Identifier: GPL-3.0-or-later
"""The products of a graph that can be computed in 8 bits: in float32 and observed, or rounded.

They are those of the encoders and of a dense embedding's feed-forward layer. The other layers stay in
float32. The embedding alone would cause ten times the error of everything else, because of the rule-50
plane's range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from evaluator.backends.onnx.graph import Graph
from evaluator.backends.onnx.quantisation import LARGEST_WEIGHT, Rounding, column_weights, quantised_weights
from evaluator.network.spec import FloatArray


def linear(g: Graph, x: str, weights: FloatArray, biases: FloatArray | None) -> str:
    """[rows, in] -> [rows, out] in float32; weights [out, in]."""
    # Gemm with transB uses the file's layout; onnxruntime packs it once when the session opens.
    inputs = [x, g.constant(weights)] + ([] if biases is None else [g.constant(biases)])
    return g.op("Gemm", *inputs, transB=1)


Affine = tuple[FloatArray, FloatArray | None]
"""Weights [out, in] and biases [out] of a product."""


class Products(ABC):
    """Computes a graph's products. Those with a common input have a common name."""

    @abstractmethod
    def multipliers(self, name: str) -> FloatArray | None:
        """Return the factors of a product's input channels, or None. The code that computes the input may
        fold them in."""

    @abstractmethod
    def linear(self, g: Graph, x: str, layer: Affine, name: str, *, multiplied: bool = False) -> str:
        """[rows, in] -> [rows, out]. multiplied: x contains the multipliers already."""


class ObservedProducts(Products):
    """Products in float32. Outputs of the graph give the ranges of their inputs, and `columns` the weight of
    each channel (`column_weights`), by name."""

    def __init__(self) -> None:
        self.columns: dict[str, FloatArray] = {}

    def multipliers(self, name: str) -> FloatArray | None:
        return None

    def linear(self, g: Graph, x: str, layer: Affine, name: str, *, multiplied: bool = False) -> str:
        weights, biases = layer
        columns = column_weights(weights)
        if name in self.columns:
            columns = np.maximum(columns, self.columns[name])
        else:
            for end, kind in zip(range_outputs(name), ("ReduceMin", "ReduceMax"), strict=True):
                g.output(g.op(kind, x, g.integers(0), keepdims=0), end, [weights.shape[1]])
        self.columns[name] = columns
        return linear(g, x, weights, biases)


def range_outputs(name: str) -> tuple[str, str]:
    """Return the names of the outputs with the minimum and maximum of each channel of a product's input."""
    return f"least {name}", f"largest {name}"


class RoundedProducts(Products):
    """Products in 8 bits if their name has a rounding, else in float32.

    largest_weight: limit of int8 weights, LARGEST_WEIGHT or less.
    """

    def __init__(self, roundings: Mapping[str, Rounding], largest_weight: int = LARGEST_WEIGHT) -> None:
        self._roundings = roundings
        self._largest_weight = largest_weight
        self._inputs: dict[str, str] = {}

    def multipliers(self, name: str) -> FloatArray | None:
        return self._roundings[name].multipliers if name in self._roundings else None

    def linear(self, g: Graph, x: str, layer: Affine, name: str, *, multiplied: bool = False) -> str:
        weights, biases = layer
        rounding = self._roundings.get(name)
        if rounding is None:
            return linear(g, x, weights, biases)
        if name not in self._inputs:
            if not multiplied:
                x = g.op("Mul", x, g.constant(rounding.multipliers))
            x = g.op(
                "QuantizeLinear", x, g.scalar(float(rounding.scale)), g.constant(np.array(rounding.zero))
            )
            self._inputs[name] = x
        codes, scale = quantised_weights(weights / rounding.multipliers, self._largest_weight)
        inputs = [
            self._inputs[name],
            g.constant(np.ascontiguousarray(codes.T)),
            g.scalar(float(rounding.scale)),
            g.constant(scale),
            g.constant(np.array(rounding.zero)),
        ]
        if biases is not None:
            inputs += ["", g.constant(biases)]
        return g.op("MatMulIntegerToFloat", *inputs, domain="com.microsoft")

# SPDX-License-Identifier: GPL-3.0-or-later
"""A network's layers in the kernels' form: packed weights, including constant factors and norms.

Layers have names and are made once for all batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from evaluator.backends.gpu.driver.target import MatrixUnit, Precision
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.products.linear_layer import E4m3Scales, Linear
from evaluator.backends.gpu.plan.program import PlanError
from evaluator.backends.gpu.plan.quantised import WeightFormat
from evaluator.backends.gpu.plan.quantised import pack as pack_codes
from evaluator.backends.gpu.plan.weights import round_up
from evaluator.network import e4m3, spec
from evaluator.network.policy_tables import position_encoding

PLANES = 112
"""Planes of a position; in an embedding's input the position encoding follows them."""


class PackedLayers:
    """The layers of a network, packed on first use."""

    def __init__(
        self,
        precision: Precision,
        known: dict[str, Linear],
        codes: WeightFormat | None = None,
        unit: MatrixUnit = MatrixUnit.FMA,
    ) -> None:
        """known: packed layers by name, to which others are added. codes: format to which the encoders'
        weights were rounded, if any. unit: the unit that multiplies them."""
        self.precision = precision
        self._known = known
        self._codes = codes
        self._unit = unit

    def linear(self, name: str, make: Callable[[], Linear]) -> Linear:
        """Return the layer with a name. Raises PlanError if a weight cannot be stored."""
        if name not in self._known:
            try:
                self._known[name] = self._with_codes(make())
            except pack.WeightError as error:
                raise PlanError(f"{name}: {error}") from error
        return self._known[name]

    def _with_codes(self, linear: Linear) -> Linear:
        """Return the layer with its codes, if it is an encoder's and its weights can be written as codes."""
        if (
            self._codes is None
            or linear.eight is not None
            or not linear.name.startswith(("encoder", "smolgen"))
        ):
            return linear
        return replace(linear, packed=pack_codes(linear.weights, self._codes, self._unit))

    def dense(self, name: str, layer: spec.Dense, *, scale: float = 1.0) -> Linear:
        """Return a dense layer. scale: factor on the output before the activation, which must then be
        NONE."""

        if layer.inputs is not None:
            return self._dense_of_pairs(_of_e4m3(name), layer, layer.inputs, scale)

        def make() -> Linear:
            return Linear(
                name,
                len(layer.biases),
                pack.matrix(_times(layer.weights, np.float32(scale)), self.precision),
                pack.vector(_times(layer.biases, np.float32(scale)), self.precision),
                layer.activation,
            )

        return self.linear(name, make)

    def _dense_of_pairs(self, name: str, layer: spec.Dense, inputs: e4m3.E4m3Inputs, scale: float) -> Linear:
        def make() -> Linear:
            biases = pack.vector(_times(layer.biases, np.float32(scale)), self.precision)
            return _of_pairs(name, layer.weights, biases, layer.activation, inputs, scale)

        return self.linear(name, make)

    def dense_of_norm(self, name: str, layer: spec.Dense, norm: spec.LayerNorm) -> Linear:
        """Return a layer whose input rows are before a norm; weights and biases contain the gammas and
        betas."""

        def make() -> Linear:
            inner = _of_norm(layer, norm)
            weights = pack.matrix(inner.weights, self.precision)
            biases = pack.vector(inner.biases, self.precision)
            return Linear(f"{name}.of_norm", len(inner.biases), weights, biases, inner.activation, norm=norm)

        return self.linear(f"{name}.of_norm", make)

    def convolution(self, name: str, layer: spec.ConvBlock, *, outputs: int | None = None) -> Linear:
        """Return a convolution. outputs: only the first `outputs` channels."""

        def make() -> Linear:
            weights, biases = layer.weights[:outputs], layer.biases[:outputs]
            size = weights.shape[2]
            packed = pack.convolution(weights, self.precision)
            return Linear(
                name,
                len(biases),
                packed,
                pack.vector(biases, self.precision),
                layer.activation,
                convolution=size == 3,
            )

        return self.linear(name, make)

    def flattened(self, name: str, layer: spec.Dense, *, channels_first: bool) -> Linear:
        """Return a dense layer on a whole flattened board."""

        def make() -> Linear:
            return Linear(
                name,
                len(layer.biases),
                pack.after_flatten(layer.weights, self.precision, channels_first=channels_first),
                pack.vector(layer.biases, self.precision),
                layer.activation,
            )

        return self.linear(name, make)

    def side_by_side(self, name: str, layers: Sequence[spec.Dense]) -> Linear:
        """Return layers with the same input and activation as one."""

        def make() -> Linear:
            weights = np.concatenate([pack.matrix(each.weights, self.precision) for each in layers])
            biases = np.concatenate([pack.vector(each.biases, self.precision) for each in layers])
            return Linear(name, len(weights), weights, biases, layers[0].activation)

        return self.linear(name, make)

    def embedding_of_planes(self, layer: spec.Dense) -> Linear:
        """Return an embedding for the planes alone: the position encoding's constant part becomes a bias per
        square."""

        def make() -> Linear:
            position = position_encoding() @ layer.weights[:, PLANES:].T + layer.biases
            biases = pack.padded(position.astype(np.float32), 1, self.precision.chunk)
            weights = pack.matrix(pack.of_planes(layer.weights[:, :PLANES]), self.precision)
            return Linear("embedding", len(layer.biases), weights, biases, layer.activation)

        return self.linear("embedding", make)

    def tail(self, tail: spec.DenseEmbeddingTail) -> tuple[Linear, Linear]:
        """Return the layers after a dense embedding; alpha is part of the second."""
        dense2 = self.dense("tail.dense2", tail.ffn.dense2, scale=tail.alpha)
        return self.dense("tail.dense1", tail.ffn.dense1), dense2

    # -- encoders --------------------------------------------------------------------------------------

    def depth(self, name: str, layer: spec.Attention) -> int:
        """Return a head's channels, padded for the attention kernel. Raises PlanError for activations that it
        does not apply."""
        for part in (layer.q, layer.k, layer.v, layer.output):
            if part.activation is not spec.Activation.NONE:
                raise PlanError(f"{name}: activations of queries, keys and values are not supported")
        return round_up(len(layer.q.biases) // layer.heads, 16)

    def qkv(self, name: str, layer: spec.Attention, before: spec.LayerNorm | None = None) -> Linear:
        """Return one product with 1/sqrt(depth) in q. before: norm of its input, to be included."""
        heads, depth = layer.heads, self.depth(name, layer)
        if layer.q.inputs is not None:
            return self._qkv_of_pairs(_of_e4m3(f"{name}.qkv"), layer, layer.q.inputs, depth)
        name = f"{name}.qkv" if before is None else f"{name}.qkv.of_norm"

        def make() -> Linear:
            scale = np.float32((len(layer.q.biases) // heads) ** -0.5)
            q, k, v = (
                part if before is None else _of_norm(part, before) for part in (layer.q, layer.k, layer.v)
            )
            parts = [(q, scale), (k, np.float32(1)), (v, np.float32(1))]
            weights = [pack.head_rows(_times(part.weights, factor), heads, depth) for part, factor in parts]
            biases = [pack.head_rows(_times(part.biases, factor), heads, depth) for part, factor in parts]
            return Linear(
                name,
                3 * heads * depth,
                pack.matrix(np.concatenate(weights), self.precision),
                pack.vector(np.concatenate(biases), self.precision),
                spec.Activation.NONE,
                norm=before,
            )

        return self.linear(name, make)

    def _qkv_of_pairs(self, name: str, layer: spec.Attention, inputs: e4m3.E4m3Inputs, depth: int) -> Linear:
        def make() -> Linear:
            heads, parts = layer.heads, (layer.q, layer.k, layer.v)
            of_queries = np.float32((len(layer.q.biases) // heads) ** -0.5)
            factors = (of_queries, np.float32(1), np.float32(1))
            biases = [
                pack.head_rows(_times(part.biases, factor), heads, depth)
                for part, factor in zip(parts, factors, strict=True)
            ]
            packed = _of_pairs(
                name,
                np.concatenate([pack.head_rows(part.weights, heads, depth) for part in parts]),
                pack.vector(np.concatenate(biases), self.precision),
                spec.Activation.NONE,
                inputs,
            )
            eight = packed.eight
            assert eight is not None
            first_sums = eight.sums * float(of_queries)
            return replace(packed, eight=replace(eight, first_sums=first_sums, first_columns=heads * depth))

        return self.linear(name, make)

    def attention_output(self, name: str, layer: spec.Attention, alpha: float) -> Linear:
        """Return the output layer for the heads' padded values; alpha is included."""
        inputs = layer.output.inputs

        def make() -> Linear:
            depth = self.depth(name, layer)
            weights = layer.output.weights
            if weights.shape[1] != layer.heads * depth:
                weights = pack.head_rows(np.ascontiguousarray(weights.T), layer.heads, depth).T
            if inputs is not None:
                biases = pack.vector(layer.output.biases * np.float32(alpha), self.precision)
                return _of_pairs(
                    _of_e4m3(f"{name}.output"), weights, biases, spec.Activation.NONE, inputs, alpha
                )
            return Linear(
                f"{name}.output",
                len(layer.output.biases),
                pack.matrix(weights * np.float32(alpha), self.precision),
                pack.vector(layer.output.biases * np.float32(alpha), self.precision),
                spec.Activation.NONE,
            )

        return self.linear(f"{name}.output" if inputs is None else _of_e4m3(f"{name}.output"), make)

    def compress(self, name: str, layer: spec.Smolgen, before: spec.LayerNorm | None = None) -> Linear:
        """Return smolgen's compression. before: norm of its input, to be included."""
        if before is not None:
            without = spec.Dense(layer.compress, np.zeros(len(layer.compress), np.float32))
            return self.dense_of_norm(f"{name}.compress", without, before)

        def make() -> Linear:
            weights = pack.matrix(layer.compress, self.precision)
            return Linear(f"{name}.compress", len(layer.compress), weights, None, spec.Activation.NONE)

        return self.linear(f"{name}.compress", make)

    def smolgen_layers(
        self, name: str, layer: spec.Smolgen, heads: int
    ) -> tuple[Linear, Linear, spec.LayerNorm, Linear]:
        """Return dense1, dense2 and its norm, and the layer for a head's logits, which all layers share."""
        own = len(layer.dense2.biases) // heads
        width = round_up(own, self.precision.chunk)  # per head, so that each begins with a chunk

        def per_head(values: spec.FloatArray) -> spec.FloatArray:
            return pack.head_rows(values, heads, width)

        def make_dense2() -> Linear:
            weights = pack.matrix(per_head(layer.dense2.weights), self.precision)
            biases = pack.vector(per_head(layer.dense2.biases), self.precision)
            return Linear(f"{name}.dense2", heads * width, weights, biases, layer.dense2.activation)

        def make_generate() -> Linear:
            weights = pack.matrix(layer.position_weights, self.precision)
            return Linear(
                "smolgen.generate", len(layer.position_weights), weights, None, spec.Activation.NONE
            )

        return (
            self.flattened(f"{name}.dense1", layer.dense1, channels_first=False),
            self.linear(f"{name}.dense2", make_dense2),
            spec.LayerNorm(per_head(layer.norm2.gammas), per_head(layer.norm2.betas), layer.norm2.epsilon),
            self.linear("smolgen.generate", make_generate),
        )

    def qkv_compress(
        self, name: str, layer: spec.Attention, generator: spec.Smolgen, before: spec.LayerNorm | None = None
    ) -> Linear:
        """Return smolgen's compression combined with q, k and v in one product. before: as in `qkv`."""
        within = f"{name}.qkv_compress" if before is None else f"{name}.qkv_compress.of_norm"

        def make() -> Linear:
            parts = self.qkv(name, layer, before)
            compress = self.compress(f"{name}.smolgen", generator, before)
            assert parts.biases is not None
            none = np.zeros(len(compress.weights), np.float32)
            return Linear(
                within,
                parts.width + len(compress.weights),
                np.concatenate([parts.weights, compress.weights]),
                np.concatenate([parts.biases, none if compress.biases is None else compress.biases]),
                spec.Activation.NONE,
                norm=before,
            )

        return self.linear(within, make)

    # -- heads -----------------------------------------------------------------------------------------

    def policy_products(self, head: spec.AttentionPolicyHead) -> Linear:
        """Return q and k as one product, each padded to whole chunks; 1/sqrt(D) is in q."""
        width = len(head.q.biases)
        stride = round_up(width, self.precision.chunk)

        def make() -> Linear:
            scale = np.float32(width**-0.5)
            weights = np.zeros((2 * stride, head.q.weights.shape[1]), np.float32)
            biases = np.zeros(2 * stride, np.float32)
            weights[:width], biases[:width] = head.q.weights * scale, head.q.biases * scale
            weights[stride : stride + width], biases[stride : stride + width] = head.k.weights, head.k.biases
            packed = pack.matrix(weights, self.precision)
            return Linear("policy.qk", 2 * stride, packed, biases, spec.Activation.NONE)

        return self.linear("policy.qk", make)


def _of_e4m3(name: str) -> str:
    """Return the name of a layer with 8-bit weights and inputs."""
    return f"{name}.e4m3"


def _of_pairs(
    name: str,
    weights: spec.FloatArray,
    biases: spec.FloatArray,
    activation: spec.Activation,
    inputs: e4m3.E4m3Inputs,
    factor: float = 1.0,
) -> Linear:
    """Return a layer with weights rounded to 8 bits (fp8.rounded_network). factor: on its sums. biases:
    padded, with the factor."""
    rows = pack.padded(weights, 8, 16)
    scale = e4m3.scale_for(float(np.abs(weights).max(initial=0.0)))
    pairs = e4m3.codes(rows * np.float32(scale)).view(np.uint16)
    scales = E4m3Scales(inputs.scale, factor / (scale * inputs.scale))
    return Linear(name, len(weights), pairs, biases, activation, eight=scales)


def _times(values: spec.FloatArray, factor: np.float32) -> spec.FloatArray:
    """Return the product; the array itself for factor 1, because networks are large."""
    return values if factor == 1 else values * factor


def _of_norm(layer: spec.Dense, norm: spec.LayerNorm) -> spec.Dense:
    """Return a layer after a norm, with the gammas in its weights and the betas in its biases."""
    return replace(
        layer,
        weights=layer.weights * norm.gammas,
        biases=(layer.biases + layer.weights @ norm.betas).astype(np.float32),
    )

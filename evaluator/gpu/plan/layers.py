# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of a network as the kernels take them: packed weights, with constant factors and norms in them.

What is made here is named, and made once for all batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from evaluator.gpu.driver.target import MatrixUnit, Precision
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.products.linear_layer import E4m3Scales, Linear
from evaluator.gpu.plan.program import PlanError
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.quantised import pack as pack_codes
from evaluator.gpu.plan.weights import round_up
from evaluator.network import e4m3
from evaluator.network.policy_tables import position_encoding
from evaluator.network.spec import (
    Activation,
    Attention,
    AttentionPolicyHead,
    ConvBlock,
    Dense,
    DenseEmbeddingTail,
    FloatArray,
    LayerNorm,
    Smolgen,
)

PLANES = 112
"""Planes of a position, which the position encoding follows in an embedding's input."""


class PackedLayers:
    """The layers of a network, packed when they are first asked for."""

    def __init__(
        self,
        precision: Precision,
        known: dict[str, Linear],
        codes: WeightFormat | None = None,
        unit: MatrixUnit = MatrixUnit.FMA,
    ) -> None:
        """known: layers by name that are packed already, to which others are added. codes: the format that
        the encoders' weights were rounded to, where they were, and unit: what multiplies them."""
        self.precision = precision
        self._known = known
        self._codes = codes
        self._unit = unit

    def linear(self, name: str, make: Callable[[], Linear]) -> Linear:
        """The layer of that name. Raises PlanError where a weight cannot be stored."""
        if name not in self._known:
            try:
                self._known[name] = self._with_codes(make())
            except pack.WeightError as error:
                raise PlanError(f"{name}: {error}") from error
        return self._known[name]

    def _with_codes(self, linear: Linear) -> Linear:
        """The layer with its codes, if it is one of the encoders' and its weights can be written as codes."""
        if (
            self._codes is None
            or linear.eight is not None
            or not linear.name.startswith(("encoder", "smolgen"))
        ):
            return linear
        return replace(linear, packed=pack_codes(linear.weights, self._codes, self._unit))

    def dense(self, name: str, layer: Dense, *, scale: float = 1.0) -> Linear:
        """scale: a factor on the output before the activation, which must then be NONE."""

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

    def _dense_of_pairs(self, name: str, layer: Dense, inputs: e4m3.E4m3Inputs, scale: float) -> Linear:
        def make() -> Linear:
            biases = pack.vector(_times(layer.biases, np.float32(scale)), self.precision)
            return _of_pairs(name, layer.weights, biases, layer.activation, inputs, scale)

        return self.linear(name, make)

    def dense_of_norm(self, name: str, layer: Dense, norm: LayerNorm) -> Linear:
        """Of rows before a norm, of which the weights and biases have the gammas and betas."""

        def make() -> Linear:
            inner = _of_norm(layer, norm)
            weights = pack.matrix(inner.weights, self.precision)
            biases = pack.vector(inner.biases, self.precision)
            return Linear(f"{name}.of_norm", len(inner.biases), weights, biases, inner.activation, norm=norm)

        return self.linear(f"{name}.of_norm", make)

    def convolution(self, name: str, layer: ConvBlock, *, outputs: int | None = None) -> Linear:
        """outputs: only the first so many."""

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

    def flattened(self, name: str, layer: Dense, *, channels_first: bool) -> Linear:
        """A dense layer on a whole flattened board."""

        def make() -> Linear:
            return Linear(
                name,
                len(layer.biases),
                pack.after_flatten(layer.weights, self.precision, channels_first=channels_first),
                pack.vector(layer.biases, self.precision),
                layer.activation,
            )

        return self.linear(name, make)

    def side_by_side(self, name: str, layers: Sequence[Dense]) -> Linear:
        """Layers of one activation that take the same, as one."""

        def make() -> Linear:
            weights = np.concatenate([pack.matrix(each.weights, self.precision) for each in layers])
            biases = np.concatenate([pack.vector(each.biases, self.precision) for each in layers])
            return Linear(name, len(weights), weights, biases, layers[0].activation)

        return self.linear(name, make)

    def embedding_of_planes(self, layer: Dense) -> Linear:
        """An embedding that takes the planes and the position encoding, as one that takes the planes alone:
        what the encoding gives is a bias for each square."""

        def make() -> Linear:
            position = position_encoding() @ layer.weights[:, PLANES:].T + layer.biases
            biases = pack.padded(position.astype(np.float32), 1, self.precision.chunk)
            weights = pack.matrix(pack.of_planes(layer.weights[:, :PLANES]), self.precision)
            return Linear("embedding", len(layer.biases), weights, biases, layer.activation)

        return self.linear("embedding", make)

    def tail(self, tail: DenseEmbeddingTail) -> tuple[Linear, Linear]:
        """What follows a dense embedding; alpha is in the second layer."""
        dense2 = self.dense("tail.dense2", tail.ffn.dense2, scale=tail.alpha)
        return self.dense("tail.dense1", tail.ffn.dense1), dense2

    # -- of an encoder ---------------------------------------------------------------------------------

    def depth(self, name: str, layer: Attention) -> int:
        """Channels of a head, padded to what the attention kernel multiplies. Raises PlanError for
        activations that it does not apply."""
        for part in (layer.q, layer.k, layer.v, layer.output):
            if part.activation is not Activation.NONE:
                raise PlanError(f"{name}: activations of queries, keys and values are not supported")
        return round_up(len(layer.q.biases) // layer.heads, 16)

    def qkv(self, name: str, layer: Attention, before: LayerNorm | None = None) -> Linear:
        """One product, with 1/sqrt(depth) in q. before: a norm of what it takes, to be part of it."""
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
                Activation.NONE,
                norm=before,
            )

        return self.linear(name, make)

    def _qkv_of_pairs(self, name: str, layer: Attention, inputs: e4m3.E4m3Inputs, depth: int) -> Linear:
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
                Activation.NONE,
                inputs,
            )
            eight = packed.eight
            assert eight is not None
            first_sums = eight.sums * float(of_queries)
            return replace(packed, eight=replace(eight, first_sums=first_sums, first_columns=heads * depth))

        return self.linear(name, make)

    def attention_output(self, name: str, layer: Attention, alpha: float) -> Linear:
        """Takes the heads' padded values; alpha is in it."""
        inputs = layer.output.inputs

        def make() -> Linear:
            depth = self.depth(name, layer)
            weights = layer.output.weights
            if weights.shape[1] != layer.heads * depth:
                weights = pack.head_rows(np.ascontiguousarray(weights.T), layer.heads, depth).T
            if inputs is not None:
                biases = pack.vector(layer.output.biases * np.float32(alpha), self.precision)
                return _of_pairs(_of_e4m3(f"{name}.output"), weights, biases, Activation.NONE, inputs, alpha)
            return Linear(
                f"{name}.output",
                len(layer.output.biases),
                pack.matrix(weights * np.float32(alpha), self.precision),
                pack.vector(layer.output.biases * np.float32(alpha), self.precision),
                Activation.NONE,
            )

        return self.linear(f"{name}.output" if inputs is None else _of_e4m3(f"{name}.output"), make)

    def compress(self, name: str, layer: Smolgen, before: LayerNorm | None = None) -> Linear:
        """before: a norm of what it takes, to be part of it."""
        if before is not None:
            without = Dense(layer.compress, np.zeros(len(layer.compress), np.float32))
            return self.dense_of_norm(f"{name}.compress", without, before)

        def make() -> Linear:
            weights = pack.matrix(layer.compress, self.precision)
            return Linear(f"{name}.compress", len(layer.compress), weights, None, Activation.NONE)

        return self.linear(f"{name}.compress", make)

    def smolgen_layers(
        self, name: str, layer: Smolgen, heads: int
    ) -> tuple[Linear, Linear, LayerNorm, Linear]:
        """dense1, dense2 and its norm, and what makes the logits of a head, which all layers share."""
        own = len(layer.dense2.biases) // heads
        width = round_up(own, self.precision.chunk)  # of a head, so that each begins with a chunk

        def per_head(values: FloatArray) -> FloatArray:
            return pack.head_rows(values, heads, width)

        def make_dense2() -> Linear:
            weights = pack.matrix(per_head(layer.dense2.weights), self.precision)
            biases = pack.vector(per_head(layer.dense2.biases), self.precision)
            return Linear(f"{name}.dense2", heads * width, weights, biases, layer.dense2.activation)

        def make_generate() -> Linear:
            weights = pack.matrix(layer.position_weights, self.precision)
            return Linear("smolgen.generate", len(layer.position_weights), weights, None, Activation.NONE)

        return (
            self.flattened(f"{name}.dense1", layer.dense1, channels_first=False),
            self.linear(f"{name}.dense2", make_dense2),
            LayerNorm(per_head(layer.norm2.gammas), per_head(layer.norm2.betas), layer.norm2.epsilon),
            self.linear("smolgen.generate", make_generate),
        )

    def qkv_compress(
        self, name: str, layer: Attention, generator: Smolgen, before: LayerNorm | None = None
    ) -> Linear:
        """What smolgen takes of each square in one product with q, k and v. before: as of `qkv`."""
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
                Activation.NONE,
                norm=before,
            )

        return self.linear(within, make)

    # -- of heads --------------------------------------------------------------------------------------

    def policy_products(self, head: AttentionPolicyHead) -> Linear:
        """q and k as one product, each padded to whole chunks; 1/sqrt(D) is in q."""
        width = len(head.q.biases)
        stride = round_up(width, self.precision.chunk)

        def make() -> Linear:
            scale = np.float32(width**-0.5)
            weights = np.zeros((2 * stride, head.q.weights.shape[1]), np.float32)
            biases = np.zeros(2 * stride, np.float32)
            weights[:width], biases[:width] = head.q.weights * scale, head.q.biases * scale
            weights[stride : stride + width], biases[stride : stride + width] = head.k.weights, head.k.biases
            packed = pack.matrix(weights, self.precision)
            return Linear("policy.qk", 2 * stride, packed, biases, Activation.NONE)

        return self.linear("policy.qk", make)


def _of_e4m3(name: str) -> str:
    """The name of a layer whose weights and inputs have 8 bits."""
    return f"{name}.e4m3"


def _of_pairs(
    name: str,
    weights: FloatArray,
    biases: FloatArray,
    activation: Activation,
    inputs: e4m3.E4m3Inputs,
    factor: float = 1.0,
) -> Linear:
    """A layer of weights that were rounded to 8 bits (fp8.rounded_network), times a factor on its
    sums. biases: padded, with the factor."""
    rows = pack.padded(weights, 8, 16)
    scale = e4m3.scale_for(float(np.abs(weights).max(initial=0.0)))
    pairs = e4m3.codes(rows * np.float32(scale)).view(np.uint16)
    scales = E4m3Scales(inputs.scale, factor / (scale * inputs.scale))
    return Linear(name, len(weights), pairs, biases, activation, eight=scales)


def _times(values: FloatArray, factor: np.float32) -> FloatArray:
    """The product; the array itself where the factor is 1, as networks are large."""
    return values if factor == 1 else values * factor


def _of_norm(layer: Dense, norm: LayerNorm) -> Dense:
    """A layer that takes what a norm makes, with the gammas in its weights and the betas in its biases."""
    return replace(
        layer,
        weights=layer.weights * norm.gammas,
        biases=(layer.biases + layer.weights @ norm.betas).astype(np.float32),
    )

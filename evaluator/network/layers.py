# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads encoder layers of a file: attention, smolgen, feed-forward. Used for bodies and policy heads."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.network.errors import NetworkError
from evaluator.network.fields import Fields
from evaluator.network.spec import (
    Activation,
    Attention,
    EncoderLayer,
    FeedForward,
    FloatArray,
    Smolgen,
)

_SMOLGEN_EPSILON = 1e-3


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """Common properties of a stack of layers. width: E. headcount_name: field with the number of heads."""

    width: int
    heads: int
    headcount_name: str
    ffn_activation: Activation
    smolgen_activation: Activation
    alpha: float
    epsilon: float


def read_encoders(weights: Fields, layers: list[Fields], options: EncoderOptions) -> tuple[EncoderLayer, ...]:
    """Read a stack of layers. weights: the file's Weights, with the smolgen matrix shared by all layers."""
    if not layers:
        return ()
    if options.heads < 1:
        raise NetworkError(f"{options.headcount_name}: missing or 0; encoders need at least one head")
    shared = None
    if any(layer.child("mha").has("smolgen") for layer in layers):
        values = weights.values("smolgen_w")
        if len(values) % 4096:
            raise NetworkError(f"weights.smolgen_w: {len(values)} values, expected a multiple of 4096")
        shared = values.reshape(4096, -1)  # one array for all layers
    return tuple(_encoder(layer, options, shared) for layer in layers)


def _encoder(layer: Fields, options: EncoderOptions, shared: FloatArray | None) -> EncoderLayer:
    ffn = layer.child("ffn")
    dense1 = ffn.dense("dense1", options.width, options.ffn_activation)
    dense2 = ffn.dense("dense2", len(dense1.biases))
    _same(ffn.name("dense2_b"), len(dense2.biases), options.width)
    return EncoderLayer(
        attention=_attention(layer.child("mha"), options, shared),
        norm1=layer.norm("ln1", options.width, options.epsilon),
        ffn=FeedForward(dense1, dense2),
        norm2=layer.norm("ln2", options.width, options.epsilon),
        alpha=options.alpha,
    )


def _attention(mha: Fields, options: EncoderOptions, shared: FloatArray | None) -> Attention:
    for name in ("rpe_q", "rpe_k", "rpe_v"):
        if mha.has(name):
            raise NetworkError(f"{mha.name(name)}: relative position encodings are not supported")
    q = mha.dense("q", options.width)
    k = mha.dense("k", options.width)
    v = mha.dense("v", options.width)
    model = len(q.biases)
    _same(mha.name("k_b"), len(k.biases), model)
    _same(mha.name("v_b"), len(v.biases), model)
    if model % options.heads:
        raise NetworkError(
            f"{options.headcount_name}: {options.heads} heads do not divide the width {model} of "
            f"{mha.name('q_b')}"
        )
    output = mha.dense("dense", model)
    _same(mha.name("dense_b"), len(output.biases), options.width)
    smolgen = None
    if mha.has("smolgen"):
        assert shared is not None
        smolgen = _smolgen(mha.child("smolgen"), options, shared)
    return Attention(options.heads, q, k, v, output, smolgen)


def _smolgen(smolgen: Fields, options: EncoderOptions, shared: FloatArray) -> Smolgen:
    compress = smolgen.values("compress")
    hidden, rest = divmod(len(compress), options.width)
    if rest or not hidden:
        raise NetworkError(
            f"{smolgen.name('compress')}: {len(compress)} values, expected a multiple of the width "
            f"{options.width}"
        )
    activation = options.smolgen_activation
    dense1 = smolgen.dense("dense1", 64 * hidden, activation)
    dense2 = smolgen.dense("dense2", len(dense1.biases), activation)
    generated = len(dense2.biases)
    if generated % options.heads:
        raise NetworkError(
            f"{smolgen.name('dense2_b')}: {generated} values, expected a multiple of the "
            f"{options.heads} heads"
        )
    gen = generated // options.heads
    if shared.shape[1] != gen:
        raise NetworkError(
            f"weights.smolgen_w: {shared.size} values, expected {4096 * gen} (4096 x {gen}) "
            f"for {smolgen.name('dense2_b')}"
        )
    return Smolgen(
        compress=compress.reshape(hidden, options.width),
        dense1=dense1,
        norm1=smolgen.norm("ln1", len(dense1.biases), _SMOLGEN_EPSILON),
        dense2=dense2,
        norm2=smolgen.norm("ln2", generated, _SMOLGEN_EPSILON),
        position_weights=shared,
    )


def _same(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise NetworkError(f"{name}: {found} values, expected {expected}")

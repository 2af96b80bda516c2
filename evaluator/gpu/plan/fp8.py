# SPDX-License-Identifier: GPL-3.0-or-later
"""The network that precision=fp8 computes: the encoders' products of weights and inputs in e4m3.

`rounded_network` says all of it in the network itself: the weights are rounded, and each layer says how its
inputs are (`Dense.inputs`). The reference computes that network, and the plan makes its kernels from it, so
both round the same numbers in the same places. Smolgen, norms, softmax, the skip connections, embedding and
heads stay as they are.

A matrix has one scale, and so have the inputs of a layer. No scale is measured, neither at run time nor from
positions: what a layer norm makes is bounded by its gammas and betas, and so is what the layers behind it
make of that. e4m3 has as many digits anywhere between 2^-6 and 448, so that a bound that is 100 times too
large costs nothing (docs/lab/gpu-formats.md compares it with scales of each row, tile and tensor).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evaluator.network.arithmetic import activate
from evaluator.network.e4m3 import E4m3Inputs, rounded_matrix, scale_for
from evaluator.network.spec import (
    AttentionBody,
    Dense,
    EncoderLayer,
    FeedForward,
    FloatArray,
    LayerNorm,
    NetworkSpec,
)

CHUNK = 16
"""Inputs of a product are rounded where they are whole chunks of so many: the 16 bytes that a thread
moves."""

_REACH = 16.0
"""How many standard deviations the hidden layer of a feed-forward is allowed before e4m3 saturates. A normed
row of E elements can reach sqrt(E) of them, but squared as by relu_squared that would leave few digits. The
trained networks of docs/lab/gpu-formats.md reach 6."""


def rounded_network(network: NetworkSpec) -> NetworkSpec:
    """The network with the encoders' products in e4m3. A residual network stays as it is, and so does the
    attention of a first encoder whose input is no norm's."""
    body = network.body
    if not isinstance(body, AttentionBody):
        return network
    before = None if body.tail is None else body.tail.norm2
    encoders = []
    for layer in body.encoders:
        encoders.append(_encoder(layer, before))
        before = layer.norm2
    return replace(network, body=replace(body, encoders=tuple(encoders)))


def _encoder(layer: EncoderLayer, before: LayerNorm | None) -> EncoderLayer:
    attention = layer.attention
    if before is not None:
        inputs = _of_norm(before)
        # What attention gives is a mean of the values of some squares.
        mixed = _of_bounds(_bounds(attention.v, before))
        q, k, v = _rounded((attention.q, attention.k, attention.v), inputs)
        (output,) = _rounded((attention.output,), mixed)
        attention = replace(attention, q=q, k=k, v=v, output=output)
    return replace(layer, attention=attention, ffn=_feed_forward(layer.ffn, layer.norm1))


def _feed_forward(ffn: FeedForward, norm: LayerNorm) -> FeedForward:
    bounds = _bounds(ffn.dense1, norm, _REACH)
    ends = activate(ffn.dense1.activation, np.concatenate([bounds, -bounds]))
    (dense1,) = _rounded((ffn.dense1,), _of_norm(norm))
    (dense2,) = _rounded((ffn.dense2,), _of_bounds(ends))
    return FeedForward(dense1, dense2)


def _rounded(layers: tuple[Dense, ...], inputs: E4m3Inputs) -> list[Dense]:
    """Layers that are one product, rounded; as they are where it has no whole chunks of inputs."""
    if layers[0].weights.shape[1] % CHUNK:
        return list(layers)
    together = np.concatenate([layer.weights for layer in layers])
    weights = rounded_matrix(together)
    ends = np.cumsum([len(layer.weights) for layer in layers])
    parts = np.split(weights, ends[:-1])
    return [replace(layer, weights=part, inputs=inputs) for layer, part in zip(layers, parts, strict=True)]


def _of_norm(norm: LayerNorm) -> E4m3Inputs:
    """The rounding of what a norm makes: no element of a normed row of E exceeds sqrt(E)."""
    return _of_bounds(np.abs(norm.gammas) * np.sqrt(np.float32(len(norm.gammas))) + np.abs(norm.betas))


def _of_bounds(bounds: FloatArray) -> E4m3Inputs:
    """The rounding of what has such magnitudes at most."""
    return E4m3Inputs(scale_for(float(np.abs(bounds).max())))


def _bounds(layer: Dense, norm: LayerNorm, reach: float = np.inf) -> FloatArray:
    """The largest magnitudes of a layer's sums from what a norm makes, by Cauchy and Schwarz: a normed row
    has the length sqrt(E). reach: as if it were no longer than that."""
    length = min(float(np.sqrt(len(norm.gammas))), reach)
    spread = np.sqrt(np.square(layer.weights * norm.gammas).sum(axis=1))
    bounds: FloatArray = spread * np.float32(length) + np.abs(layer.weights @ norm.betas + layer.biases)
    return bounds

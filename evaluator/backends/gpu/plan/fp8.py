# SPDX-License-Identifier: GPL-3.0-or-later
"""The network for precision=fp8: the encoders' products have weights and inputs in e4m3.

`rounded_network` expresses this in the network itself: weights are rounded, and each layer has the rounding
of its inputs (`Dense.inputs`). The reference and the kernels both use that network, so they round the same
numbers in the same places. Smolgen, norms, softmax, skip connections, embedding and heads do not change.

A matrix has one scale, and so do a layer's inputs. No scale is measured, neither at run time nor on
positions. The output of a layer norm is bounded by its gammas and betas, which also bounds the outputs of the
layers behind it. e4m3 has constant relative precision between 2^-6 and 448, so a bound that is 100 times too
large costs nothing (docs/lab/gpu-formats.md compares it with scales per row, tile and tensor).
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
"""Inputs of a product are rounded if they are whole chunks of this size: the 16 bytes that a thread moves."""

_REACH = 16.0
"""Range of a feed-forward's hidden layer in standard deviations before e4m3 saturates. A normed row of E
elements can reach sqrt(E), but after relu_squared that would leave few digits. The trained networks of
docs/lab/gpu-formats.md reach 6."""


def rounded_network(network: NetworkSpec) -> NetworkSpec:
    """Return the network with the encoders' products in e4m3. A residual network does not change, nor does
    the attention of a first encoder whose input does not come from a norm."""
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
        # Attention returns means of the values of some squares.
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
    """Return layers of one common product, rounded; unchanged if its inputs are not whole chunks."""
    if layers[0].weights.shape[1] % CHUNK:
        return list(layers)
    together = np.concatenate([layer.weights for layer in layers])
    weights = rounded_matrix(together)
    ends = np.cumsum([len(layer.weights) for layer in layers])
    parts = np.split(weights, ends[:-1])
    return [replace(layer, weights=part, inputs=inputs) for layer, part in zip(layers, parts, strict=True)]


def _of_norm(norm: LayerNorm) -> E4m3Inputs:
    """Return the rounding of a norm's output: no element of a normed row of E exceeds sqrt(E)."""
    return _of_bounds(np.abs(norm.gammas) * np.sqrt(np.float32(len(norm.gammas))) + np.abs(norm.betas))


def _of_bounds(bounds: FloatArray) -> E4m3Inputs:
    """Return the rounding for values with these maximum magnitudes."""
    return E4m3Inputs(scale_for(float(np.abs(bounds).max())))


def _bounds(layer: Dense, norm: LayerNorm, reach: float = np.inf) -> FloatArray:
    """Return the maximum magnitudes of a layer's sums after a norm, by Cauchy-Schwarz: a normed row has
    length sqrt(E). reach: upper limit of that length."""
    length = min(float(np.sqrt(len(norm.gammas))), reach)
    spread = np.sqrt(np.square(layer.weights * norm.gammas).sum(axis=1))
    bounds: FloatArray = spread * np.float32(length) + np.abs(layer.weights @ norm.betas + layer.biases)
    return bounds

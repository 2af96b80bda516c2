# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference: an lc0 forward pass in numpy, one function per kind of layer, written for readability.

Shapes: n positions, 64 squares (s), channels last for tokens [n, 64, C] and first for planes [n, C, 8, 8].
With dtype float64 the logits are exact to about 1e-13; other backends are compared with it. With float32
every tensor is stored and multiplied in float32, but sums that lose digits (layer norm, softmax) use float64.
Maximum difference to lc0's own float32: 1.3e-5 of a logit and 1.1e-6 of q on the 21 golden networks. float64
differs by as much, so the remainder is lc0's rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.batches import evaluation, expand_planes
from evaluator.network import spec
from evaluator.network.arithmetic import Array, activate, layer_norm, scalar, softmax
from evaluator.network.policy_tables import (
    CONVOLUTION_PLANES,
    attention_map,
    convolution_map,
    position_encoding,
    source_of_policy,
)
from evaluator.network.schema import InputEmbedding
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch


@dataclass(frozen=True, slots=True)
class NetworkOutput:
    """All outputs of a network. policy [n, 1858] raw logits; value [n, 3] W D L, or [n, 1] in -1..1;
    moves_left [n, 1] plies, or None. dtype: that of the pass."""

    policy: Array
    value: Array
    moves_left: Array | None

    @property
    def q(self) -> Array:
        """Return q [n] in -1..1 for the side to move: W - L, or the single value."""
        result: Array = self.value[:, 0] - self.value[:, 2] if self.value.shape[1] == 3 else self.value[:, 0]
        return result


NEEDS_NETWORK = True


def unavailable() -> str | None:
    return None


def open(network: spec.NetworkSpec, settings: DeviceSettings, *, dtype: str = "float32") -> ReferenceBackend:
    return ReferenceBackend(network, dtype=dtype)


class ReferenceBackend(Backend):
    """A slow, exact backend with numpy on the CPU."""

    name = "reference"
    on_host = True
    max_batch = 256

    def __init__(self, network: spec.NetworkSpec, *, dtype: str = "float32") -> None:
        """dtype: float32 or float64."""
        if dtype not in ("float32", "float64"):
            raise BackendError(f"dtype must be float32 or float64, not {dtype!r}")
        self.network = network
        self.dtype = np.dtype(dtype)
        self.device = f"CPU (numpy), {'fp64' if dtype == 'float64' else 'fp32'}"

    def forward(self, planes: Array) -> NetworkOutput:
        """Return all outputs for planes [n, 112, 64]."""
        return forward(self.network, planes.astype(self.dtype))

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        output = self.forward(expand_planes(batch.positions))
        return evaluation(batch, output.policy, output.value, output.moves_left)


def forward(network: spec.NetworkSpec, planes: Array) -> NetworkOutput:
    """Return all outputs. planes: [n, 112, 64], float32 or float64, in which the pass is computed."""
    match network.body:
        case spec.ResidualTower() as tower:
            x = residual_tower(tower, planes.reshape(-1, 112, 8, 8))
        case spec.AttentionBody() as body:
            x = attention_body(body, planes)
    return NetworkOutput(
        policy=policy_head(network.policy, x),
        value=value_head(network.value, x),
        moves_left=None if network.moves_left is None else moves_left_head(network.moves_left, x),
    )


# --- bodies -------------------------------------------------------------------------------------------------


def residual_tower(tower: spec.ResidualTower, planes: Array) -> Array:
    """[n, 112, 8, 8] -> [n, C, 8, 8]."""
    x = convolution(tower.input, planes)
    for block in tower.blocks:
        y = convolution(block.conv2, convolution(block.conv1, x))
        if block.se is not None:
            y = squeeze_excitation(block.se, y)
        x = activate(block.activation, y + x)
    return x


def attention_body(body: spec.AttentionBody, planes: Array) -> Array:
    """[n, 112, 64] -> [n, 64, E]."""
    count = len(planes)
    if body.tower is not None:
        x = tokens_of(residual_tower(body.tower, planes.reshape(-1, 112, 8, 8)))
    else:
        x = planes.transpose(0, 2, 1)
        match body.position:
            case InputEmbedding.PE_MAP:
                position = np.broadcast_to(position_encoding().astype(x.dtype), (count, 64, 64))
                x = np.concatenate([x, position], axis=2)
            case InputEmbedding.PE_DENSE:
                assert body.preprocess is not None
                pieces = x[:, :, :12].reshape(count, 64 * 12)
                position = dense(body.preprocess, pieces).reshape(count, 64, -1)
                x = np.concatenate([x, position], axis=2)
            case InputEmbedding.NONE:
                pass
    x = dense(body.embedding, x)
    if body.tail is not None:
        x = layer_norm(body.tail.norm1, x)
    if body.gating is not None:
        x = x * body.gating.multiply.astype(x.dtype) + body.gating.add.astype(x.dtype)
    if body.tail is not None:
        x = layer_norm(body.tail.norm2, x + scalar(body.tail.alpha, x) * feed_forward(body.tail.ffn, x))
    for layer in body.encoders:
        x = encoder(layer, x)
    return x


def encoder(layer: spec.EncoderLayer, x: Array) -> Array:
    """[n, 64, E] -> [n, 64, E]."""
    alpha = scalar(layer.alpha, x)
    x = layer_norm(layer.norm1, x + alpha * attention(layer.attention, x))
    return layer_norm(layer.norm2, x + alpha * feed_forward(layer.ffn, x))


def attention(layer: spec.Attention, x: Array) -> Array:
    """[n, 64, E] -> [n, 64, E]."""
    count, heads = len(x), layer.heads

    def split(y: Array) -> Array:
        """[n, 64, D] -> [n, heads, 64, depth]."""
        return y.reshape(count, 64, heads, -1).transpose(0, 2, 1, 3)

    q, k, v = split(dense(layer.q, x)), split(dense(layer.k, x)), split(dense(layer.v, x))
    logits = q @ k.transpose(0, 1, 3, 2) * scalar(q.shape[3] ** -0.5, x)
    if layer.smolgen is not None:
        logits = logits + smolgen(layer.smolgen, heads, x)
    mixed = softmax(logits) @ v
    return dense(layer.output, mixed.transpose(0, 2, 1, 3).reshape(count, 64, -1))


def smolgen(layer: spec.Smolgen, heads: int, x: Array) -> Array:
    """[n, 64, E] -> [n, heads, 64 query squares, 64 key squares]."""
    count = len(x)
    compressed = product(x, layer.compress).reshape(count, -1)
    hidden = layer_norm(layer.norm1, dense(layer.dense1, compressed))
    generated = layer_norm(layer.norm2, dense(layer.dense2, hidden)).reshape(count, heads, -1)
    return product(generated, layer.position_weights).reshape(count, heads, 64, 64)


# --- heads --------------------------------------------------------------------------------------------------


def policy_head(head: spec.PolicyHead, x: Array) -> Array:
    """The body's output -> [n, 1858]."""
    match head:
        case spec.ClassicalPolicyHead():
            return dense(head.dense, convolution(head.conv, x).reshape(len(x), -1))
        case spec.ConvolutionPolicyHead():
            y = convolution(head.conv2, convolution(head.conv1, x))[:, :CONVOLUTION_PLANES]
            return y.reshape(len(x), -1)[:, source_of_policy(convolution_map())]
        case spec.AttentionPolicyHead():
            return attention_policy(head, x)


def attention_policy(head: spec.AttentionPolicyHead, x: Array) -> Array:
    y = dense(head.embedding, tokens_of(x) if x.ndim == 4 else x)
    for layer in head.encoders:
        y = encoder(layer, y)
    q, k = dense(head.q, y), dense(head.k, y)
    moves = q @ k.transpose(0, 2, 1) * scalar(q.shape[2] ** -0.5, x)  # [n, from, to]
    offsets = head.promotion.astype(x.dtype) @ k[:, 56:].transpose(0, 2, 1)  # [n, 4, to-file]
    offsets = offsets[:, :3] + offsets[:, 3:]
    promotions = (
        moves[:, 48:56, 56:, None] + offsets.transpose(0, 2, 1)[:, None]
    )  # [n, from-file, to-file, piece]
    entries = np.concatenate([moves.reshape(len(x), -1), promotions.reshape(len(x), -1)], axis=1)
    return entries[:, source_of_policy(attention_map())]


def value_head(head: spec.ValueHead, x: Array) -> Array:
    """[n, 3] probabilities W D L, or [n, 1]."""
    y = dense(head.dense2, dense(head.dense1, squares_flattened(head.embedding, x)))
    return softmax(y) if head.wdl else y


def moves_left_head(head: spec.MovesLeftHead, x: Array) -> Array:
    """[n, 1], plies."""
    return dense(head.dense2, dense(head.dense1, squares_flattened(head.embedding, x)))


def squares_flattened(embedding: spec.ConvBlock | spec.Dense, x: Array) -> Array:
    """Flatten a value head's embedding: channel*64 + square after a convolution, else square*C + channel."""
    y = convolution(embedding, x) if isinstance(embedding, spec.ConvBlock) else dense(embedding, x)
    return y.reshape(len(x), -1)


# --- layers -------------------------------------------------------------------------------------------------


def dense(layer: spec.Dense, x: Array) -> Array:
    """[..., in] -> [..., out]."""
    if layer.inputs is not None:
        x = layer.inputs.rounded(x)
    return activate(layer.activation, product(x, layer.weights) + layer.biases.astype(x.dtype))


def product(x: Array, weights: Array) -> Array:
    """[..., in] times weights [out, in] -> [..., out]; one matrix product, which numpy would split for 3-D
    x."""
    flat: Array = x.reshape(-1, x.shape[-1]) @ weights.T.astype(x.dtype)
    return flat.reshape(*x.shape[:-1], len(weights))


def feed_forward(layer: spec.FeedForward, x: Array) -> Array:
    return dense(layer.dense2, dense(layer.dense1, x))


def convolution(layer: spec.ConvBlock, x: Array) -> Array:
    """[n, in, 8, 8] -> [n, out, 8, 8], zero padding that keeps the size."""
    outputs, inputs, size, _ = layer.weights.shape
    edge = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    columns = patches.transpose(0, 1, 4, 5, 2, 3).reshape(len(x), inputs * size * size, 64)
    y = layer.weights.reshape(outputs, -1).astype(x.dtype) @ columns + layer.biases.astype(x.dtype)[:, None]
    return activate(layer.activation, y.reshape(len(x), outputs, 8, 8))


def squeeze_excitation(unit: spec.SEUnit, y: Array) -> Array:
    pooled = y.mean(axis=(2, 3), dtype=np.float64).astype(y.dtype)
    z = dense(unit.excite, dense(unit.squeeze, pooled))[:, :, None, None]
    channels = y.shape[1]
    return activate(spec.Activation.SIGMOID, z[:, :channels]) * y + z[:, channels:]


def tokens_of(planes: Array) -> Array:
    """[n, C, 8, 8] -> [n, 64, C]."""
    return planes.reshape(*planes.shape[:2], 64).transpose(0, 2, 1)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of an attention network, each created from its part of a NetworkSpec and converted back.

Weights are float32; a layer computes in the type of its input. Shapes: n positions, 64 squares, channels
last. `evaluator.network.spec` and the slow reference backend define what a layer computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from evaluator.network import Activation, FloatArray, spec

RARE = 0.001
"""Units that are positive on a smaller share of a batch's squares are nearly dead. Usual share: 0.1."""


def parameter(values: FloatArray) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.array(values, np.float32)))


def array(values: Tensor) -> FloatArray:
    """Return a float32 copy for a spec."""
    return np.ascontiguousarray(values.detach().float().cpu().numpy())


def activate(activation: Activation, x: Tensor) -> Tensor:
    match activation:
        case Activation.NONE:
            return x
        case Activation.MISH:
            return functional.mish(x)
        case Activation.RELU:
            return functional.relu(x)
        case Activation.RELU_SQUARED:
            return functional.relu(x).square()
        case Activation.SWISH:
            return functional.silu(x)
        case Activation.SELU:
            return functional.selu(x)
        case Activation.TANH:
            return torch.tanh(x)
        case Activation.SIGMOID:
            return torch.sigmoid(x)


def product(x: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """Return weights @ x + biases in the type of x."""
    return functional.linear(x, weights.to(x.dtype), None if biases is None else biases.to(x.dtype))


def with_slope(activation: Activation, x: Tensor, slope: float) -> Tensor:
    """Like `activate`, with a gradient of `slope` below 0 for nearly dead units (see RARE), x: [..., units].
    Their exact gradient is almost zero, so they would never recover."""
    rare = (x.detach() > 0).flatten(0, -2).float().mean(0) < RARE
    below = (slope * rare).to(x.dtype) * x.clamp(max=0)
    return activate(activation, x) + (below - below.detach())


class DenseModule(nn.Module):
    """weights @ x + biases, then the activation. slope: see `with_slope`; 0 disables it."""

    def __init__(self, layer: spec.Dense) -> None:
        super().__init__()
        self.weights = parameter(layer.weights)
        self.biases = parameter(layer.biases)
        self.activation = layer.activation
        self.slope = 0.0

    def forward(self, x: Tensor) -> Tensor:
        y = product(x, self.weights, self.biases)
        return with_slope(self.activation, y, self.slope) if self.slope else activate(self.activation, y)

    def spec(self) -> spec.Dense:
        return spec.Dense(array(self.weights), array(self.biases), self.activation)


class LayerNormModule(nn.Module):
    """Layer norm over the last axis, in float32."""

    def __init__(self, layer: spec.LayerNorm) -> None:
        super().__init__()
        self.gammas = parameter(layer.gammas)
        self.betas = parameter(layer.betas)
        self.epsilon = layer.epsilon

    def forward(self, x: Tensor) -> Tensor:
        y = functional.layer_norm(x.float(), self.gammas.shape, self.gammas, self.betas, self.epsilon)
        return y.to(x.dtype)

    def spec(self) -> spec.LayerNorm:
        return spec.LayerNorm(array(self.gammas), array(self.betas), self.epsilon)


class FeedForwardModule(nn.Module):
    def __init__(self, layer: spec.FeedForward) -> None:
        super().__init__()
        self.dense1, self.dense2 = DenseModule(layer.dense1), DenseModule(layer.dense2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dense2(self.dense1(x))
        return result

    def spec(self) -> spec.FeedForward:
        return spec.FeedForward(self.dense1.spec(), self.dense2.spec())


class SmolgenModule(nn.Module):
    """Attention logits from the whole position. The network owns the position weights [4096, gen]."""

    def __init__(self, layer: spec.Smolgen, heads: int) -> None:
        super().__init__()
        self.compress = parameter(layer.compress)
        self.dense1, self.norm1 = DenseModule(layer.dense1), LayerNormModule(layer.norm1)
        self.dense2, self.norm2 = DenseModule(layer.dense2), LayerNormModule(layer.norm2)
        self.heads = heads

    def forward(self, x: Tensor, position_weights: Tensor) -> Tensor:
        """Return logits [n, heads, 64 query squares, 64 key squares]."""
        n = x.shape[0]
        hidden = functional.linear(x, self.compress.to(x.dtype)).reshape(n, -1)
        hidden = self.norm1(self.dense1(hidden))
        generated = self.norm2(self.dense2(hidden)).reshape(n, self.heads, -1)
        logits = product(generated, position_weights, None)
        return logits.reshape(n, self.heads, 64, 64)

    def spec(self, position_weights: FloatArray) -> spec.Smolgen:
        return spec.Smolgen(
            array(self.compress),
            self.dense1.spec(),
            self.norm1.spec(),
            self.dense2.spec(),
            self.norm2.spec(),
            position_weights,
        )


class AttentionModule(nn.Module):
    """Multi-head self-attention; one product computes queries, keys and values.

    Uses plain products and a float32 softmax. After `use_kernel`, 16-bit types on a GPU use a kernel that
    keeps the logits on the chip.
    """

    def __init__(self, layer: spec.Attention) -> None:
        super().__init__()
        three = (layer.q, layer.k, layer.v)
        self.qkv_weights = parameter(np.stack([dense.weights for dense in three]))  # [3, D, E]
        self.qkv_biases = parameter(np.stack([dense.biases for dense in three]))
        self.output = DenseModule(layer.output)
        self.smolgen = None if layer.smolgen is None else SmolgenModule(layer.smolgen, layer.heads)
        self.heads = layer.heads
        self._kernel: Callable[[Tensor, Tensor, int], Tensor] | None = None

    def use_kernel(self) -> None:
        from training.model.board_attention import board_attention

        self._kernel = board_attention

    @property
    def depth(self) -> int:
        """Channels per head."""
        return self.qkv_weights.shape[1] // self.heads

    def forward(self, x: Tensor, position_weights: Tensor | None) -> Tensor:
        weights, biases = self.qkv_weights.flatten(0, 1), self.qkv_biases.flatten()
        y = product(x, weights, biases)
        bias = x.new_empty(0) if self.smolgen is None else self.smolgen(x, position_weights)
        kernel = self._kernel if y.dtype.itemsize == 2 else None
        mixed = (kernel or self._mixed)(y, bias, self.heads)
        result: Tensor = self.output(mixed)
        return result

    @staticmethod
    def _mixed(y: Tensor, bias: Tensor, heads: int) -> Tensor:
        """Multi-head attention over the 64 squares, as `board_attention`.

        y: [N, 64, 3·H·D], q, k, v stacked; bias: [N, H, 64, 64] or empty; result [N, 64, H·D].
        """
        n, squares, qkv_width = y.shape
        q, k, v = y.reshape(n, squares, 3, heads, -1).permute(2, 0, 3, 1, 4)
        logits = (q @ k.transpose(2, 3)).float() * q.shape[3] ** -0.5
        if bias.numel():
            logits = logits + bias
        return (logits.softmax(dim=3).to(v.dtype) @ v).transpose(1, 2).reshape(n, squares, qkv_width // 3)

    def spec(self, position_weights: FloatArray | None) -> spec.Attention:
        q, k, v = (
            spec.Dense(array(weights), array(biases))
            for weights, biases in zip(self.qkv_weights, self.qkv_biases, strict=True)
        )
        smolgen = None
        if self.smolgen is not None:
            assert position_weights is not None
            smolgen = self.smolgen.spec(position_weights)
        return spec.Attention(self.heads, q, k, v, self.output.spec(), smolgen)


class EncoderLayerModule(nn.Module):
    """Post-norm encoder: x = norm1(x + alpha attention(x)); x = norm2(x + alpha ffn(x))."""

    def __init__(self, layer: spec.EncoderLayer) -> None:
        super().__init__()
        self.attention = AttentionModule(layer.attention)
        self.norm1 = LayerNormModule(layer.norm1)
        self.ffn = FeedForwardModule(layer.ffn)
        self.norm2 = LayerNormModule(layer.norm2)
        self.alpha = layer.alpha

    def forward(self, x: Tensor, position_weights: Tensor | None) -> Tensor:
        x = self.norm1(x + self.alpha * self.attention(x, position_weights))
        result: Tensor = self.norm2(x + self.alpha * self.ffn(x))
        return result

    def spec(self, position_weights: FloatArray | None) -> spec.EncoderLayer:
        return spec.EncoderLayer(
            self.attention.spec(position_weights),
            self.norm1.spec(),
            self.ffn.spec(),
            self.norm2.spec(),
            self.alpha,
        )


class SquaresHead(nn.Module):
    """The value or moves-left head: embedding of each square, flattened, then two dense layers."""

    def __init__(self, head: spec.ValueHead | spec.MovesLeftHead) -> None:
        super().__init__()
        assert isinstance(head.embedding, spec.Dense)
        self.embedding = DenseModule(head.embedding)
        self.dense1, self.dense2 = DenseModule(head.dense1), DenseModule(head.dense2)
        self._head = head

    def hidden(self, x: Tensor) -> Tensor:
        """Map [n, 64, E] to [n, hidden], float32."""
        result: Tensor = self.dense1(self.embedding(x).flatten(1)).float()
        return result

    def spec(self) -> spec.ValueHead | spec.MovesLeftHead:
        return replace(
            self._head,
            embedding=self.embedding.spec(),
            dense1=self.dense1.spec(),
            dense2=self.dense2.spec(),
        )

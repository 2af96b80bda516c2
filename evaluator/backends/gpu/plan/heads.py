# SPDX-License-Identifier: GPL-3.0-or-later
"""The launches for a network's heads, from the board at the end of its body."""

from __future__ import annotations

import numpy as np

from evaluator.backends.gpu.plan.bodies import encoder
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.layers import PackedLayers
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.program import Matrix
from evaluator.backends.gpu.plan.steps import policy_of_entries, policy_of_products
from evaluator.backends.gpu.plan.weights import round_up
from evaluator.network.policy_tables import attention_map, convolution_map, source_of_policy
from evaluator.network.spec import (
    AttentionPolicyHead,
    ClassicalPolicyHead,
    ConvBlock,
    ConvolutionPolicyHead,
    MovesLeftHead,
    PolicyHead,
    ValueHead,
)


def policy(b: ProgramBuilder, layers: PackedLayers, head: PolicyHead, x: Matrix) -> None:
    """Append the logits of every position's legal moves."""
    match head:
        case ClassicalPolicyHead():
            y = linear(b, layers.convolution("policy.conv", head.conv), x, "policy1")
            dense = layers.flattened("policy.dense", head.dense, channels_first=True)
            entries = linear(b, dense, y.with_rows(b.positions), "policy2")
            policy_of_entries(b, entries, entries.stride, np.arange(entries.width, dtype=np.int32))
        case ConvolutionPolicyHead():
            y = linear(b, layers.convolution("policy.conv1", head.conv1), x, "policy1")
            y = linear(b, layers.convolution("policy.conv2", head.conv2), y, "policy2")
            plane, square = np.divmod(source_of_policy(convolution_map()), 64)
            policy_of_entries(b, y, 64 * y.stride, (square * y.stride + plane).astype(np.int32))
        case AttentionPolicyHead():
            y = linear(b, layers.dense("policy.embedding", head.embedding), x, "policy1")
            for index, layer in enumerate(head.encoders):
                y = encoder(b, layers, f"policy.encoder{index}", layer, y, "policy1")
            qk = linear(b, layers.policy_products(head), y, "policy2")
            policy_of_products(b, qk, head.promotion, source_of_policy(attention_map()))


def hidden_layers(
    b: ProgramBuilder, layers: PackedLayers, value: ValueHead, moves: MovesLeftHead | None, x: Matrix
) -> tuple[Matrix, Matrix | None]:
    """Append the hidden layers of the value and moves-left heads, [positions, width]."""
    if moves is None:
        return _hidden_layer(b, layers, "value", value, x), None
    first, second = value.embedding, moves.embedding
    if (
        b.chained
        or isinstance(first, ConvBlock)
        or isinstance(second, ConvBlock)
        or first.activation is not second.activation
    ):
        return _hidden_layer(b, layers, "value", value, x), _hidden_layer(b, layers, "moves_left", moves, x)
    # For few positions, a shared product saves a kernel.
    width = round_up(len(first.biases), b.precision.chunk)
    y = linear(b, layers.side_by_side("heads.embedding", (first, second)), x, "heads1")
    hidden = []
    for name, head, at, end in (("value", value, 0, width), ("moves_left", moves, width, y.width)):
        dense1 = layers.flattened(f"{name}.dense1", head.dense1, channels_first=False)
        board = Matrix(y.buffer, b.positions, 64 * (end - at), y.stride, end - at, at)
        hidden.append(linear(b, dense1, board, f"{name}2"))
    return hidden[0], hidden[1]


def _hidden_layer(
    b: ProgramBuilder, layers: PackedLayers, name: str, head: ValueHead | MovesLeftHead, x: Matrix
) -> Matrix:
    """Append the hidden layer of one head, [positions, width]."""
    convolved = isinstance(head.embedding, ConvBlock)
    if isinstance(head.embedding, ConvBlock):
        embedding = layers.convolution(f"{name}.embedding", head.embedding)
    else:
        embedding = layers.dense(f"{name}.embedding", head.embedding)
    y = linear(b, embedding, x, f"{name}1")
    dense1 = layers.flattened(f"{name}.dense1", head.dense1, channels_first=convolved)
    return linear(b, dense1, y.with_rows(b.positions), f"{name}2")

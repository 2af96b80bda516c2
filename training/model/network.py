# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's attention network in PyTorch, converted from a NetworkSpec and back to one."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evaluator.network import (
    Dense,
    InputEmbedding,
    Smolgen,
    attention_map,
    position_encoding,
    source_of_policy,
    spec,
)
from training.errors import TrainingError
from training.model.layers import (
    DenseModule,
    EncoderLayerModule,
    FeedForwardModule,
    LayerNormModule,
    SquaresHead,
    array,
    parameter,
)

PIECE_PLANES = 12

KERNEL_DEPTHS = (16, 32, 64, 128)
"""Channels per head that `board_attention` supports: powers of two that suit matrix units."""


class Outputs(NamedTuple):
    """Results, float32. policy: [n, 4288] logits of from-to pairs and promotions, see `policy_source`.
    value: [n, 3] logits of WDL, or [n, 1] in -1..1. moves_left: [n] plies, or None.
    policy_embedding: [n, 64, E], value_hidden: [n, hidden], for auxiliary heads."""

    policy: Tensor
    value: Tensor
    moves_left: Tensor | None
    policy_embedding: Tensor
    value_hidden: Tensor


def policy_source() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the index in `Outputs.policy` of each policy entry, int32 [1858]."""
    return source_of_policy(attention_map())


class PolicyPairs(nn.Module):
    """Queries, keys and promotions of an attention policy."""

    def __init__(self, q: Dense, k: Dense, promotion: spec.FloatArray) -> None:
        super().__init__()
        self.q, self.k = DenseModule(q), DenseModule(k)
        self.promotion = parameter(promotion)

    def forward(self, y: Tensor) -> Tensor:
        """Map [n, 64, E] to logits [n, 4288]."""
        q, k = self.q(y), self.k(y)
        moves = q @ k.transpose(1, 2) * q.shape[2] ** -0.5
        offsets = k[:, 56:] @ self.promotion.t()  # [n, to-file, 4]
        offsets = offsets[:, :, :3] + offsets[:, :, 3:]
        promotions = moves[:, 48:56, 56:, None] + offsets[:, None]
        return torch.cat([moves.flatten(1), promotions.flatten(1)], dim=1)


class AttentionNetwork(nn.Module):
    """The whole network. `spec` converts it to a NetworkSpec."""

    def __init__(self, network: spec.NetworkSpec) -> None:
        """Raise TrainingError for a network without an attention body."""
        super().__init__()
        body, policy = network.body, network.policy
        if not isinstance(body, spec.AttentionBody) or body.tower is not None:
            raise TrainingError(f"{network.name}: only networks with an attention body can be trained")
        if not isinstance(policy, spec.AttentionPolicyHead):
            raise TrainingError(f"{network.name}: only attention policies can be trained")
        self.template = network
        self.position = body.position
        self.preprocess = None if body.preprocess is None else DenseModule(body.preprocess)
        self.embedding = DenseModule(body.embedding)
        if body.position is InputEmbedding.PE_MAP:
            self.register_buffer("position_map", torch.from_numpy(position_encoding()), persistent=False)
        self.tail_norm1 = self.tail_ffn = self.tail_norm2 = None
        self.tail_alpha = 1.0
        if body.tail is not None:
            self.tail_norm1, self.tail_norm2 = (
                LayerNormModule(body.tail.norm1),
                LayerNormModule(body.tail.norm2),
            )
            self.tail_ffn, self.tail_alpha = FeedForwardModule(body.tail.ffn), body.tail.alpha
        self.multiply = None if body.gating is None else parameter(body.gating.multiply)
        self.add = None if body.gating is None else parameter(body.gating.add)
        smolgens = [layer.attention.smolgen for layer in (*body.encoders, *policy.encoders)]
        shared = next((smolgen for smolgen in smolgens if isinstance(smolgen, Smolgen)), None)
        self.position_weights = None if shared is None else parameter(shared.position_weights)
        self.encoders = nn.ModuleList(EncoderLayerModule(layer) for layer in body.encoders)
        self.policy_embedding = DenseModule(policy.embedding)
        self.policy_encoders = nn.ModuleList(EncoderLayerModule(layer) for layer in policy.encoders)
        self.policy = PolicyPairs(policy.q, policy.k, policy.promotion)
        self.value = SquaresHead(network.value)
        self.moves_left = None if network.moves_left is None else SquaresHead(network.moves_left)

    def forward(self, tokens: Tensor) -> Outputs:
        """tokens: [n, 64, 112], planes last. Their type is the type of computation, except where float32."""
        x = self.body(tokens)
        y = self.policy_embedding(x)
        for layer in self.policy_encoders:
            y = layer(y, self.position_weights)
        y = y.float()
        hidden = self.value.hidden(x)
        moves_left = None
        if self.moves_left is not None:
            moves_left = self.moves_left.dense2(self.moves_left.hidden(x)).squeeze(1)
        return Outputs(self.policy(y), self.value.dense2(hidden), moves_left, y, hidden)

    def body(self, tokens: Tensor) -> Tensor:
        """Return the body's output [n, 64, E]."""
        n = tokens.shape[0]
        x = tokens
        if self.position is InputEmbedding.PE_MAP:
            x = torch.cat([x, self.position_map.to(x.dtype).expand(n, 64, 64)], dim=2)
        elif self.position is InputEmbedding.PE_DENSE:
            assert self.preprocess is not None
            pieces = tokens[:, :, :PIECE_PLANES].reshape(n, 64 * PIECE_PLANES)
            x = torch.cat([x, self.preprocess(pieces).reshape(n, 64, -1)], dim=2)
        x = self.embedding(x)
        if self.tail_norm1 is not None:
            x = self.tail_norm1(x)
        if self.multiply is not None and self.add is not None:
            x = x * self.multiply.to(x.dtype) + self.add.to(x.dtype)
        if self.tail_norm2 is not None and self.tail_ffn is not None:
            x = self.tail_norm2(x + self.tail_alpha * self.tail_ffn(x))
        for layer in self.encoders:
            x = layer(x, self.position_weights)
        return x

    def use_attention(self, method: str, device: torch.device, dtype: torch.dtype) -> None:
        """Choose the attention: explicit, kernel, or auto, which uses the kernel if possible."""
        attentions = [layer.attention for layer in (*self.encoders, *self.policy_encoders)]
        fits = all(attention.depth in KERNEL_DEPTHS for attention in attentions)
        can = device.type == "cuda" and dtype.itemsize == 2 and fits and find_spec("triton") is not None
        if method == "kernel" and not can:
            raise TrainingError(
                "[run] attention: the kernel needs a GPU, 16-bit numbers, Triton, and heads of "
                f"{', '.join(map(str, KERNEL_DEPTHS))} channels: choose auto or explicit"
            )
        if method == "kernel" or (method == "auto" and can):
            for attention in attentions:
                attention.use_kernel()

    def spec(self, *, policy_scale: float = 1.0) -> spec.NetworkSpec:
        """Return the current network. policy_scale: factor of all policy logits."""
        template = self.template
        body, policy = template.body, template.policy
        assert isinstance(body, spec.AttentionBody) and isinstance(policy, spec.AttentionPolicyHead)
        shared = None if self.position_weights is None else array(self.position_weights)
        tail = None
        if self.tail_norm1 is not None and self.tail_ffn is not None and self.tail_norm2 is not None:
            tail = spec.DenseEmbeddingTail(
                self.tail_norm1.spec(), self.tail_ffn.spec(), self.tail_norm2.spec(), self.tail_alpha
            )
        gating = None
        if self.multiply is not None and self.add is not None:
            gating = spec.Gating(array(self.multiply), array(self.add))
        scale = np.float32(policy_scale)
        q = self.policy.q.spec()
        value, moves_left = self.value.spec(), self.moves_left and self.moves_left.spec()
        assert isinstance(value, spec.ValueHead) and isinstance(moves_left, spec.MovesLeftHead | None)
        return replace(
            template,
            body=replace(
                body,
                preprocess=None if self.preprocess is None else self.preprocess.spec(),
                embedding=self.embedding.spec(),
                tail=tail,
                gating=gating,
                encoders=tuple(layer.spec(shared) for layer in self.encoders),
            ),
            policy=spec.AttentionPolicyHead(
                embedding=self.policy_embedding.spec(),
                encoders=tuple(layer.spec(shared) for layer in self.policy_encoders),
                q=Dense(q.weights * scale, q.biases * scale),
                k=self.policy.k.spec(),
                promotion=array(self.policy.promotion) * scale,
            ),
            value=value,
            moves_left=moves_left,
            policy_heads=(template.policy_head,),
            value_heads=(template.value_head,),
        )

# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a NetworkSpec as an lc0 network file, for random networks, tests and conversions."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from itertools import cycle
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from evaluator.network import spec
from evaluator.network.header import activation_number
from evaluator.network.heads import POLICY_HEAD_FIELDS, VALUE_HEAD_FIELDS
from evaluator.network.schema import (
    MAGIC,
    InputEmbedding,
    Message,
    MovesLeftFormat,
    Structure,
    ValueFormat,
    WeightsEncoding,
    new_message,
)
from evaluator.network.tensors import encode_layer


def write_network(network: spec.NetworkSpec, path: str | PathLike[str], **options: Any) -> None:
    """Write a network, gzip-compressed if the path ends in .gz. options: those of `network_message`."""
    data: bytes = network_message(network, **options).SerializeToString()
    path = Path(path)
    # Level 1, because weights hardly compress at any level. No time stamp, so that equal networks give equal
    # files.
    path.write_bytes(gzip.compress(data, 1, mtime=0) if path.suffix == ".gz" else data)


def network_message(
    network: spec.NetworkSpec,
    *,
    encodings: tuple[WeightsEncoding, ...] = (WeightsEncoding.LINEAR16,),
    license: str = "",
    policy_heads: Mapping[str, spec.PolicyHead] | None = None,
    value_heads: Mapping[str, spec.ValueHead] | None = None,
) -> Message:
    """Return a network as a `Net` message.

    encodings: assigned to the tensors cyclically. policy_heads, value_heads: all heads by user-visible name,
    for a file with several (default: the network's own).
    """
    net = new_message("Net")
    net.magic = MAGIC
    if license:
        net.license = license.encode()
    linear = set(encodings) == {WeightsEncoding.LINEAR16}
    net.min_version.major, net.min_version.minor, net.min_version.patch = (0, 30 if linear else 33, 0)
    if linear:
        net.format.weights_encoding = WeightsEncoding.LINEAR16
    several = policy_heads is not None or value_heads is not None
    multihead = several or network.info.structure is Structure.ATTENTION_BODY_MULTIHEAD
    _write_header(net.format.network_format, network, multihead)
    writer = _Writer(encodings)
    weights = net.weights
    match network.body:
        case spec.ResidualTower() as tower:
            writer.tower(weights, tower)
        case spec.AttentionBody() as body:
            writer.attention_body(weights, body)
    if multihead:
        for name, policy in (policy_heads or {network.policy_head: network.policy}).items():
            writer.policy(getattr(weights.policy_heads, POLICY_HEAD_FIELDS[name]), weights, policy)
        for name, value in (value_heads or {network.value_head: network.value}).items():
            writer.flat_head(getattr(weights.value_heads, VALUE_HEAD_FIELDS[name]), "value", "val", value)
    else:
        writer.policy(weights, weights, network.policy)
        writer.flat_head(weights, "value", "val", network.value)
    if network.moves_left is not None:
        writer.flat_head(weights, "moves_left", "mov", network.moves_left)
    return net


def _write_header(header: Message, network: spec.NetworkSpec, multihead: bool) -> None:
    header.input = network.input_format
    header.policy = network.policy_format
    header.value = ValueFormat.WDL if network.value.wdl else ValueFormat.CLASSICAL
    header.output = header.value
    header.moves_left = MovesLeftFormat.NONE if network.moves_left is None else MovesLeftFormat.V1
    match network.body:
        case spec.ResidualTower(input=first, blocks=blocks):
            with_se = any(block.se is not None for block in blocks)
            header.network = Structure.SE_WITH_HEADS if with_se else Structure.CLASSICAL_WITH_HEADS
            activation = first.activation
        case spec.AttentionBody() as body:
            header.network = Structure.ATTENTION_BODY_MULTIHEAD if multihead else Structure.ATTENTION_BODY
            header.input_embedding = InputEmbedding.PE_DENSE if body.tail is not None else body.position
            activation = body.embedding.activation
            header.ffn_activation = activation_number(body.encoders[0].ffn.dense1.activation)
            smolgen = body.encoders[0].attention.smolgen
            if smolgen is not None:
                header.smolgen_activation = activation_number(smolgen.dense1.activation)
    header.default_activation = {spec.Activation.RELU: 0, spec.Activation.MISH: 1}[activation]


class _Writer:
    """Fills messages, assigning the encodings to the tensors cyclically."""

    def __init__(self, encodings: tuple[WeightsEncoding, ...]) -> None:
        self._encodings = cycle(encodings)

    def array(self, message: Message, field: str, values: spec.FloatArray) -> None:
        encode_layer(getattr(message, field), values, next(self._encodings))

    def dense(self, message: Message, prefix: str, layer: spec.Dense) -> None:
        self.array(message, f"{prefix}_w", layer.weights)
        self.array(message, f"{prefix}_b", layer.biases)

    def norm(self, message: Message, prefix: str, layer: spec.LayerNorm) -> None:
        self.array(message, f"{prefix}_gammas", layer.gammas)
        self.array(message, f"{prefix}_betas", layer.betas)

    def convolution(self, message: Message, layer: spec.ConvBlock) -> None:
        self.array(message, "weights", layer.weights)
        self.array(message, "biases", layer.biases)

    def feed_forward(self, message: Message, layer: spec.FeedForward) -> None:
        self.dense(message, "dense1", layer.dense1)
        self.dense(message, "dense2", layer.dense2)

    def tower(self, weights: Message, tower: spec.ResidualTower) -> None:
        self.convolution(weights.input, tower.input)
        for block in tower.blocks:
            residual = weights.residual.add()
            self.convolution(residual.conv1, block.conv1)
            self.convolution(residual.conv2, block.conv2)
            if block.se is not None:
                self.array(residual.se, "w1", block.se.squeeze.weights)
                self.array(residual.se, "b1", block.se.squeeze.biases)
                self.array(residual.se, "w2", block.se.excite.weights)
                self.array(residual.se, "b2", block.se.excite.biases)

    def attention_body(self, weights: Message, body: spec.AttentionBody) -> None:
        if body.tower is not None:
            self.tower(weights, body.tower)
        if body.preprocess is not None:
            self.dense(weights, "ip_emb_preproc", body.preprocess)
        self.dense(weights, "ip_emb", body.embedding)
        if body.gating is not None:
            self.array(weights, "ip_mult_gate", np.ascontiguousarray(body.gating.multiply.T))
            self.array(weights, "ip_add_gate", np.ascontiguousarray(body.gating.add.T))
        if body.tail is not None:
            self.norm(weights, "ip_emb_ln", body.tail.norm1)
            self.feed_forward(weights.ip_emb_ffn, body.tail.ffn)
            self.norm(weights, "ip_emb_ffn_ln", body.tail.norm2)
        weights.headcount = body.encoders[0].attention.heads
        self.encoders(weights, weights.encoder, body.encoders)

    def encoders(self, weights: Message, messages: Message, layers: tuple[spec.EncoderLayer, ...]) -> None:
        for layer in layers:
            message = messages.add()
            attention = layer.attention
            self.dense(message.mha, "q", attention.q)
            self.dense(message.mha, "k", attention.k)
            self.dense(message.mha, "v", attention.v)
            self.dense(message.mha, "dense", attention.output)
            if attention.smolgen is not None:
                smolgen = message.mha.smolgen
                self.array(smolgen, "compress", attention.smolgen.compress)
                self.dense(smolgen, "dense1", attention.smolgen.dense1)
                self.norm(smolgen, "ln1", attention.smolgen.norm1)
                self.dense(smolgen, "dense2", attention.smolgen.dense2)
                self.norm(smolgen, "ln2", attention.smolgen.norm2)
                if not weights.HasField("smolgen_w"):
                    self.array(weights, "smolgen_w", attention.smolgen.position_weights)
            self.norm(message, "ln1", layer.norm1)
            self.feed_forward(message.ffn, layer.ffn)
            self.norm(message, "ln2", layer.norm2)

    def policy(self, message: Message, weights: Message, head: spec.PolicyHead) -> None:
        match head:
            case spec.ClassicalPolicyHead():
                self.convolution(message.policy, head.conv)
                self.dense(message, "ip_pol", head.dense)
            case spec.ConvolutionPolicyHead():
                self.convolution(message.policy1, head.conv1)
                self.convolution(message.policy, head.conv2)
            case spec.AttentionPolicyHead():
                self.dense(message, "ip_pol", head.embedding)
                if head.encoders:
                    message.pol_headcount = head.encoders[0].attention.heads
                    self.encoders(weights, message.pol_encoder, head.encoders)
                self.dense(message, "ip2_pol", head.q)
                self.dense(message, "ip3_pol", head.k)
                self.array(message, "ip4_pol_w", head.promotion)

    def flat_head(
        self, message: Message, convolution: str, letters: str, head: spec.ValueHead | spec.MovesLeftHead
    ) -> None:
        """Write a head. letters: val or mov, the middle of the field names."""
        if isinstance(head.embedding, spec.ConvBlock):
            self.convolution(getattr(message, convolution), head.embedding)
        else:
            self.dense(message, f"ip_{letters}", head.embedding)
        self.dense(message, f"ip1_{letters}", head.dense1)
        self.dense(message, f"ip2_{letters}", head.dense2)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics of a network: layers, parameters, floating-point operations per position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from evaluator.network import spec
from evaluator.network.schema import InputEmbedding
from protocol.batch import PLANES


@dataclass(frozen=True, slots=True)
class Cost:
    """parameters: number of weights, with smolgen's shared matrix counted once. flop: of the matrix products
    and convolutions of one position; a multiply-add counts two. Element-wise work is excluded."""

    parameters: int
    flop: int


def cost_of(network: spec.NetworkSpec) -> Cost:
    parts = (network.body, network.policy, network.value, network.moves_left)
    arrays = {id(array): array.size for part in parts for array in _arrays(part)}
    products = _body(network.body) + _policy(network.policy) + _flat(network.value)
    if network.moves_left is not None:
        products += _flat(network.moves_left)
    return Cost(sum(arrays.values()), 2 * products)


def describe(network: spec.NetworkSpec) -> dict[str, Any]:
    """Return a JSON-compatible description, nested by topic, with keys in reading order."""
    info = network.info
    cost = cost_of(network)
    return {
        "name": network.name,
        "file": {
            "path": info.path,
            "bytes": info.bytes,
            "sha256": network.content_hash,
            "min_version": ".".join(map(str, info.min_version)),
            "weight_encodings": list(info.encodings),
            "repairs": list(info.repairs),
            "license": info.license,
            "training": info.training,
        },
        "format": {
            "structure": f"{info.structure.value} {info.structure.name}",
            "input": f"{network.input_format.value} {network.input_format.name}",
            "policy": network.policy_format.name,
            "value": "WDL" if network.value.wdl else "CLASSICAL",
            "moves_left": network.moves_left is not None,
        },
        "body": _describe_body(network.body),
        "heads": {
            "policy": _describe_policy(network.policy),
            "policy_heads": list(network.policy_heads),
            "policy_head": network.policy_head,
            "value": _describe_flat(network.value),
            "value_heads": list(network.value_heads),
            "value_head": network.value_head,
            "moves_left": None if network.moves_left is None else _describe_flat(network.moves_left),
        },
        "cost": {"parameters": cost.parameters, "gflop_per_position": round(cost.flop / 1e9, 4)},
    }


def _arrays(part: object) -> Iterator[spec.FloatArray]:
    if isinstance(part, np.ndarray):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _arrays(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _arrays(getattr(part, field.name))


# Multiplications per position.


def _convolution(layer: spec.ConvBlock) -> int:
    return 64 * layer.weights.size


def _dense(layer: spec.Dense, rows: int) -> int:
    return rows * layer.weights.size


def _tower(tower: spec.ResidualTower) -> int:
    total = _convolution(tower.input)
    for block in tower.blocks:
        total += _convolution(block.conv1) + _convolution(block.conv2)
        if block.se is not None:
            total += _dense(block.se.squeeze, 1) + _dense(block.se.excite, 1)
    return total


def _encoder(layer: spec.EncoderLayer) -> int:
    attention = layer.attention
    total = sum(_dense(part, 64) for part in (attention.q, attention.k, attention.v, attention.output))
    total += 2 * 64 * 64 * len(attention.q.biases)  # q k and the mixing of v
    if attention.smolgen is not None:
        smolgen = attention.smolgen
        total += 64 * smolgen.compress.size + _dense(smolgen.dense1, 1) + _dense(smolgen.dense2, 1)
        total += attention.heads * smolgen.position_weights.size
    return total + _dense(layer.ffn.dense1, 64) + _dense(layer.ffn.dense2, 64)


def _body(body: spec.ResidualTower | spec.AttentionBody) -> int:
    if isinstance(body, spec.ResidualTower):
        return _tower(body)
    total = _dense(body.embedding, 64)
    if body.position is InputEmbedding.PE_MAP:  # the position part is constant
        total = 64 * len(body.embedding.biases) * PLANES
    if body.tower is not None:
        total += _tower(body.tower)
    if body.preprocess is not None:
        total += _dense(body.preprocess, 1)
    if body.tail is not None:
        total += _dense(body.tail.ffn.dense1, 64) + _dense(body.tail.ffn.dense2, 64)
    return total + sum(map(_encoder, body.encoders))


def _policy(head: spec.PolicyHead) -> int:
    match head:
        case spec.ClassicalPolicyHead():
            return _convolution(head.conv) + _dense(head.dense, 1)
        case spec.ConvolutionPolicyHead():
            return _convolution(head.conv1) + _convolution(head.conv2)
        case spec.AttentionPolicyHead():
            total = _dense(head.embedding, 64) + sum(map(_encoder, head.encoders))
            total += _dense(head.q, 64) + _dense(head.k, 64)
            return total + 64 * 64 * len(head.q.biases) + 8 * head.promotion.size


def _flat(head: spec.ValueHead | spec.MovesLeftHead) -> int:
    if isinstance(head.embedding, spec.ConvBlock):
        total = _convolution(head.embedding)
    else:
        total = _dense(head.embedding, 64)
    return total + _dense(head.dense1, 1) + _dense(head.dense2, 1)


# Shapes in words.


def _describe_tower(tower: spec.ResidualTower) -> dict[str, Any]:
    first = tower.blocks[0] if tower.blocks else None
    return {
        "filters": len(tower.input.biases),
        "residual_blocks": len(tower.blocks),
        "se_width": len(first.se.squeeze.biases) if first is not None and first.se is not None else 0,
        "activation": tower.input.activation.value,
    }


def _describe_encoders(layers: tuple[spec.EncoderLayer, ...]) -> dict[str, Any]:
    layer = layers[0]
    smolgen = layer.attention.smolgen
    result: dict[str, Any] = {
        "encoder_layers": len(layers),
        "heads": layer.attention.heads,
        "model_width": len(layer.attention.q.biases),
        "ffn_width": len(layer.ffn.dense1.biases),
        "ffn_activation": layer.ffn.dense1.activation.value,
        "layer_norm_epsilon": layer.norm1.epsilon,
        "smolgen": None,
    }
    if smolgen is not None:
        result["smolgen"] = {
            "hidden_per_square": len(smolgen.compress),
            "dense": len(smolgen.dense1.biases),
            "per_head": smolgen.position_weights.shape[1],
            "activation": smolgen.dense1.activation.value,
        }
    return result


def _describe_body(body: spec.ResidualTower | spec.AttentionBody) -> dict[str, Any]:
    if isinstance(body, spec.ResidualTower):
        return {"kind": "residual", **_describe_tower(body)}
    result: dict[str, Any] = {
        "kind": "attention",
        "embedding_width": len(body.embedding.biases),
        "position": body.position.name,
        "gating": body.gating is not None,
        "activation": body.embedding.activation.value,
        **_describe_encoders(body.encoders),
    }
    if body.preprocess is not None:
        result["position_channels"] = len(body.preprocess.biases) // 64
    if body.tower is not None:
        result["tower"] = _describe_tower(body.tower)
    return result


def _describe_policy(head: spec.PolicyHead) -> dict[str, Any]:
    match head:
        case spec.ClassicalPolicyHead():
            return {"kind": "classical", "channels": len(head.conv.biases)}
        case spec.ConvolutionPolicyHead():
            return {"kind": "convolution", "channels": len(head.conv1.biases)}
        case spec.AttentionPolicyHead():
            result: dict[str, Any] = {
                "kind": "attention",
                "embedding_width": len(head.embedding.biases),
                "model_width": len(head.q.biases),
                "activation": head.embedding.activation.value,
            }
            return {**result, **(_describe_encoders(head.encoders) if head.encoders else {})}


def _describe_flat(head: spec.ValueHead | spec.MovesLeftHead) -> dict[str, Any]:
    return {"channels": len(head.embedding.biases), "hidden": len(head.dense1.biases)}

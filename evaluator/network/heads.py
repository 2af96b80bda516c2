# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the policy, value and moves-left heads of a file, and selects heads by their user-visible names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from evaluator.network import spec
from evaluator.network.errors import NetworkError
from evaluator.network.fields import Fields
from evaluator.network.header import Header
from evaluator.network.layers import EncoderOptions, read_encoders
from evaluator.network.policy_tables import CONVOLUTION_PLANES
from evaluator.network.schema import MovesLeftFormat, PolicyFormat, ValueFormat
from protocol.batch import POLICY_SIZE

_Head = TypeVar("_Head")

# User-visible name -> field in the file.
POLICY_HEAD_FIELDS = {
    "vanilla": "vanilla",
    "optimistic": "optimistic_st",
    "soft": "soft",
    "opponent": "opponent",
}
VALUE_HEAD_FIELDS = {"winner": "winner", "q": "q", "st": "st"}


@dataclass(frozen=True, slots=True)
class Chosen(Generic[_Head]):
    """A head, its name, and the names of all heads of its kind in the file."""

    head: _Head
    name: str
    names: tuple[str, ...]


def read_policy(weights: Fields, header: Header, width: int, wanted: str | None) -> Chosen[spec.PolicyHead]:
    """Read a policy head. width: channels of the body's output."""
    source, name, names = _choose(weights, "policy_heads", POLICY_HEAD_FIELDS, "policy", wanted)
    head: spec.PolicyHead
    match header.policy:
        case PolicyFormat.ATTENTION:
            head = _attention_policy(weights, source, header, width)
        case _ if header.attention_body:
            raise NetworkError(
                f"format.network_format.policy: {header.policy.value} {header.policy.name} cannot follow an "
                "attention body; only attention policies are supported there"
            )
        case PolicyFormat.CONVOLUTION:
            conv1 = source.child("policy1").convolution(width, 3, header.activation)
            conv2 = source.child("policy").convolution(len(conv1.biases), 3)
            if len(conv2.biases) < CONVOLUTION_PLANES:
                raise NetworkError(
                    f"{source.name('policy')}: {len(conv2.biases)} planes, expected at least "
                    f"{CONVOLUTION_PLANES}"
                )
            head = spec.ConvolutionPolicyHead(conv1, conv2)
        case PolicyFormat.CLASSICAL:
            conv = source.child("policy").convolution(width, 1, header.activation)
            dense = source.dense("ip_pol", 64 * len(conv.biases))
            _length(source.name("ip_pol_b"), dense, POLICY_SIZE)
            head = spec.ClassicalPolicyHead(conv, dense)
    return Chosen(head, name, names)


def read_value(weights: Fields, header: Header, width: int, wanted: str | None) -> Chosen[spec.ValueHead]:
    source, name, names = _choose(weights, "value_heads", VALUE_HEAD_FIELDS, "value", wanted)
    embedding = _embedding(source, "value", "ip_val", header, width)
    dense1 = source.dense("ip1_val", 64 * len(embedding.biases), header.activation)
    wdl = header.value is ValueFormat.WDL
    dense2 = source.dense(
        "ip2_val", len(dense1.biases), spec.Activation.NONE if wdl else spec.Activation.TANH
    )
    _length(source.name("ip2_val_b"), dense2, 3 if wdl else 1)
    return Chosen(spec.ValueHead(embedding, dense1, dense2), name, names)


def read_moves_left(weights: Fields, header: Header, width: int) -> spec.MovesLeftHead | None:
    if header.moves_left is MovesLeftFormat.NONE:
        return None
    embedding = _embedding(weights, "moves_left", "ip_mov", header, width)
    dense1 = weights.dense("ip1_mov", 64 * len(embedding.biases), header.activation)
    dense2 = weights.dense("ip2_mov", len(dense1.biases), spec.Activation.RELU)
    _length(weights.name("ip2_mov_b"), dense2, 1)
    return spec.MovesLeftHead(embedding, dense1, dense2)


def _choose(
    weights: Fields, container: str, known: dict[str, str], kind: str, wanted: str | None
) -> tuple[Fields, str, tuple[str, ...]]:
    """Return the message of the wanted head, its name, and all names.

    Files with one head have it in Weights.
    """
    default = next(iter(known))
    if weights.has(container):
        heads = weights.child(container)
        names = tuple(name for name, field in known.items() if heads.has(field))
        if not names:
            raise NetworkError(f"{heads.path}: holds no {kind} head")
    else:
        heads, names = None, (default,)
    name = wanted or (default if default in names else names[0])
    if name not in names:
        raise NetworkError(f"there is no {kind} head {name!r} in the file; it has {', '.join(names)}")
    return (weights if heads is None else heads.child(known[name])), name, names


def _embedding(
    source: Fields, convolution: str, dense: str, header: Header, width: int
) -> spec.ConvBlock | spec.Dense:
    """Return the layer that reduces the body's channels before flattening: per square, or a 1x1
    convolution."""
    if header.attention_body:
        return source.dense(dense, width, header.activation)
    return source.child(convolution).convolution(width, 1, header.activation)


def _attention_policy(
    weights: Fields, source: Fields, header: Header, width: int
) -> spec.AttentionPolicyHead:
    # Policies on ResNet bodies use selu, whatever the body's activation.
    activation = header.activation if header.attention_body else spec.Activation.SELU
    shared = weights.child("policy_heads") if weights.has("policy_heads") else source
    embedding = (source if source.has("ip_pol_w") else shared).dense("ip_pol", width, activation)
    embedding_width = len(embedding.biases)
    encoders = read_encoders(
        weights,
        source.children("pol_encoder"),
        EncoderOptions(
            width=embedding_width,
            heads=source.message.pol_headcount,
            headcount_name=source.name("pol_headcount"),
            ffn_activation=header.ffn_activation if header.attention_body else spec.Activation.SELU,
            smolgen_activation=header.smolgen_activation,
            alpha=1.0,
            epsilon=1e-6,
        ),
    )
    q = source.dense("ip2_pol", embedding_width)
    k = source.dense("ip3_pol", embedding_width)
    _length(source.name("ip3_pol_b"), k, len(q.biases))
    return spec.AttentionPolicyHead(embedding, encoders, q, k, source.array("ip4_pol_w", 4, len(q.biases)))


def _length(name: str, dense: spec.Dense, expected: int) -> None:
    if len(dense.biases) != expected:
        raise NetworkError(f"{name}: {len(dense.biases)} values, expected {expected}")

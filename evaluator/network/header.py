# SPDX-License-Identifier: GPL-3.0-or-later
"""The format header of a file, after repairs for older files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from evaluator.network.errors import NetworkError
from evaluator.network.schema import (
    InputEmbedding,
    InputFormat,
    Message,
    MovesLeftFormat,
    PolicyFormat,
    Structure,
    ValueFormat,
)
from evaluator.network.spec import Activation

_E = TypeVar("_E", bound=IntEnum)

_DEFAULT_ACTIVATIONS = {0: Activation.RELU, 1: Activation.MISH}
_ACTIVATIONS = {
    1: Activation.MISH,
    2: Activation.RELU,
    3: Activation.NONE,
    4: Activation.TANH,
    5: Activation.SIGMOID,
    6: Activation.SELU,
    7: Activation.SWISH,
    8: Activation.RELU_SQUARED,
}


def activation_number(activation: Activation) -> int:
    """Return the number of an activation in `ffn_activation` and `smolgen_activation`."""
    return next(number for number, known in _ACTIVATIONS.items() if known is activation)


@dataclass(frozen=True, slots=True)
class Header:
    """`Net.format.network_format`, repaired and checked, with "default" activations resolved."""

    input: InputFormat
    structure: Structure
    policy: PolicyFormat
    value: ValueFormat
    moves_left: MovesLeftFormat
    activation: Activation
    ffn_activation: Activation
    smolgen_activation: Activation
    embedding: InputEmbedding
    repairs: tuple[str, ...]

    @property
    def attention_body(self) -> bool:
        return self.structure in (Structure.ATTENTION_BODY, Structure.ATTENTION_BODY_MULTIHEAD)


def read_header(net: Message) -> Header:
    """Repair and check the header of a parsed file; modifies net's header. Raises NetworkError."""
    if not net.HasField("weights"):
        if net.HasField("onnx_model"):
            raise NetworkError(
                "onnx_model: the file wraps an ONNX model instead of lc0 weights, which is not supported; "
                "use the network's original .pb.gz file"
            )
        raise NetworkError("weights: missing; the file holds no network")
    repairs = _repair(net)
    header = net.format.network_format
    structure = _enum(Structure, header, "network")
    if structure is Structure.ONNX:
        raise NetworkError(
            "format.network_format.network: 5 (ONNX) is not supported; use the network's original .pb.gz file"
        )
    default = _DEFAULT_ACTIVATIONS.get(header.default_activation)
    if default is None:
        raise NetworkError(
            f"format.network_format.default_activation: {header.default_activation} is unknown; "
            "known are 0 (relu) and 1 (mish)"
        )
    return Header(
        input=_enum(InputFormat, header, "input"),
        structure=structure,
        policy=_enum(PolicyFormat, header, "policy"),
        value=_enum(ValueFormat, header, "value"),
        moves_left=_enum(MovesLeftFormat, header, "moves_left"),
        activation=default,
        ffn_activation=_activation(header, "ffn_activation", default),
        smolgen_activation=_activation(header, "smolgen_activation", default),
        embedding=_enum(InputEmbedding, header, "input_embedding"),
        repairs=tuple(repairs),
    )


def _repair(net: Message) -> list[str]:
    """Update the header of an older file in place. Returns the changes in words."""
    repairs: list[str] = []
    weights = net.weights
    if not net.format.HasField("network_format"):
        header = net.format.network_format
        header.input = InputFormat.CLASSICAL_112
        header.network = Structure.CLASSICAL_WITH_HEADS
        header.policy = PolicyFormat.CLASSICAL
        header.value = ValueFormat.CLASSICAL
        repairs.append("no network_format: classical input, structure, policy and value")
    header = net.format.network_format

    renamed = {
        Structure.CLASSICAL: Structure.CLASSICAL_WITH_HEADS,
        Structure.SE: Structure.SE_WITH_HEADS,
    }.get(header.network)
    if renamed is not None:
        repairs.append(f"network {header.network}: now {renamed.value}, with classical policy and value")
        header.network = renamed
        header.policy = PolicyFormat.CLASSICAL
        header.value = ValueFormat.CLASSICAL
    elif header.network == Structure.LEGACY_MULTIHEAD:
        repairs.append("network 134: now 7")
        header.network = Structure.ATTENTION_BODY_MULTIHEAD

    if header.network == Structure.SE_WITH_HEADS and len(weights.encoder):
        repairs.append("network 4 with encoders: now 6")
        header.network = Structure.ATTENTION_BODY
        if weights.HasField("smolgen_w"):
            header.ffn_activation = activation_number(Activation.RELU_SQUARED)
            header.smolgen_activation = activation_number(Activation.SWISH)
            repairs.append("network 4 with smolgen: ffn relu squared, smolgen swish")

    if header.network == Structure.ATTENTION_BODY:
        if weights.HasField("policy_heads") and weights.HasField("value_heads"):
            header.network = Structure.ATTENTION_BODY_MULTIHEAD
            header.input_embedding = InputEmbedding.PE_DENSE
            repairs.append("network 6 with policy_heads and value_heads: now 7 with PE_DENSE")
        elif not header.HasField("input_embedding"):
            header.input_embedding = InputEmbedding.PE_MAP
            repairs.append("network 6 without input_embedding: PE_MAP")
    return repairs


def _enum(kind: type[_E], header: Message, name: str) -> _E:
    number = getattr(header, name)
    try:
        return kind(number)
    except ValueError:
        what = number if header.HasField(name) else "absent"
        known = ", ".join(f"{e.value} {e.name}" for e in kind)
        raise NetworkError(
            f"format.network_format.{name}: {what} is not supported; known are {known}"
        ) from None


def _activation(header: Message, name: str, default: Activation) -> Activation:
    number = getattr(header, name)
    if number == 0:
        return default
    activation = _ACTIVATIONS.get(number)
    if activation is None:
        known = ", ".join(f"{n} {a.value}" for n, a in _ACTIVATIONS.items())
        raise NetworkError(
            f"format.network_format.{name}: {number} is not supported; known are 0 default, {known}"
        )
    return activation

# SPDX-License-Identifier: GPL-3.0-or-later
"""The lc0 network format as protobuf messages, built at import from one compact table.

Generated modules of protoc are tied to a protobuf release; a descriptor built at run time works with releases
5 to 7. Field numbers are those of the format (proto2, so presence is known). Two simplifications leave the
bytes unchanged. Enumerations are declared int32, because proto2 hides unknown values, which errors should
name. Strings are declared bytes, because old files contain invalid UTF-8.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "wavefront.lc0"

# One message per entry, one field per line: "name number type", with "*" after the type of a repeated field.
_MESSAGES: dict[str, str] = {
    "EngineVersion": "major 1 uint32, minor 2 uint32, patch 3 uint32",
    "NetworkFormat": """
        input 1 int32, output 2 int32, network 3 int32, policy 4 int32, value 5 int32, moves_left 6 int32,
        default_activation 7 int32, smolgen_activation 8 int32, ffn_activation 9 int32,
        input_embedding 10 int32""",
    "Format": "weights_encoding 1 int32, network_format 2 NetworkFormat",
    "TrainingParams": """
        training_steps 1 uint32, learning_rate 2 float, mse_loss 3 float, policy_loss 4 float,
        accuracy 5 float, training_params 6 bytes""",
    "Layer": "min_val 1 float, max_val 2 float, params 3 bytes, encoding 4 int32, dims 5 uint32*",
    "ConvBlock": """
        weights 1 Layer, biases 2 Layer, bn_means 3 Layer, bn_stddivs 4 Layer, bn_gammas 5 Layer,
        bn_betas 6 Layer""",
    "SEunit": "w1 1 Layer, b1 2 Layer, w2 3 Layer, b2 4 Layer",
    "Residual": "conv1 1 ConvBlock, conv2 2 ConvBlock, se 3 SEunit",
    "Smolgen": """
        compress 1 Layer, dense1_w 2 Layer, dense1_b 3 Layer, ln1_gammas 4 Layer, ln1_betas 5 Layer,
        dense2_w 6 Layer, dense2_b 7 Layer, ln2_gammas 8 Layer, ln2_betas 9 Layer""",
    "MHA": """
        q_w 1 Layer, q_b 2 Layer, k_w 3 Layer, k_b 4 Layer, v_w 5 Layer, v_b 6 Layer, dense_w 7 Layer,
        dense_b 8 Layer, smolgen 9 Smolgen, rpe_q 10 Layer, rpe_k 11 Layer, rpe_v 12 Layer""",
    "FFN": "dense1_w 1 Layer, dense1_b 2 Layer, dense2_w 3 Layer, dense2_b 4 Layer",
    "EncoderLayer": """
        mha 1 MHA, ln1_gammas 2 Layer, ln1_betas 3 Layer, ffn 4 FFN, ln2_gammas 5 Layer, ln2_betas 6 Layer""",
    "PolicyHead": """
        ip_pol_w 1 Layer, ip_pol_b 2 Layer, ip2_pol_w 3 Layer, ip2_pol_b 4 Layer, ip3_pol_w 5 Layer,
        ip3_pol_b 6 Layer, ip4_pol_w 7 Layer, pol_encoder 8 EncoderLayer*, pol_headcount 9 uint32,
        policy1 10 ConvBlock, policy 11 ConvBlock""",
    "ValueHead": """
        ip_val_w 1 Layer, ip_val_b 2 Layer, ip1_val_w 3 Layer, ip1_val_b 4 Layer, ip2_val_w 5 Layer,
        ip2_val_b 6 Layer, ip_val_err_w 7 Layer, ip_val_err_b 8 Layer, ip_val_cat_w 9 Layer,
        ip_val_cat_b 10 Layer, value 11 ConvBlock""",
    "PolicyHeads": """
        ip_pol_w 1 Layer, ip_pol_b 2 Layer, vanilla 3 PolicyHead, optimistic_st 4 PolicyHead,
        soft 5 PolicyHead, opponent 6 PolicyHead""",
    "ValueHeads": "winner 1 ValueHead, q 2 ValueHead, st 3 ValueHead",
    "Weights": """
        input 1 ConvBlock, residual 2 Residual*, policy 3 ConvBlock, ip_pol_w 4 Layer, ip_pol_b 5 Layer,
        value 6 ConvBlock, ip1_val_w 7 Layer, ip1_val_b 8 Layer, ip2_val_w 9 Layer, ip2_val_b 10 Layer,
        policy1 11 ConvBlock, moves_left 12 ConvBlock, ip1_mov_w 13 Layer, ip1_mov_b 14 Layer,
        ip2_mov_w 15 Layer, ip2_mov_b 16 Layer, ip2_pol_w 17 Layer, ip2_pol_b 18 Layer, ip3_pol_w 19 Layer,
        ip3_pol_b 20 Layer, pol_encoder 21 EncoderLayer*, ip4_pol_w 22 Layer, pol_headcount 24 uint32,
        ip_emb_w 25 Layer, ip_emb_b 26 Layer, encoder 27 EncoderLayer*, headcount 28 uint32,
        ip_val_w 29 Layer, ip_val_b 30 Layer, ip_mov_w 31 Layer, ip_mov_b 32 Layer, ip_mult_gate 33 Layer,
        ip_add_gate 34 Layer, smolgen_w 35 Layer, smolgen_b 36 Layer, ip_emb_preproc_w 37 Layer,
        ip_emb_preproc_b 38 Layer, ip_emb_ln_gammas 39 Layer, ip_emb_ln_betas 40 Layer, ip_emb_ffn 41 FFN,
        ip_emb_ffn_ln_gammas 42 Layer, ip_emb_ffn_ln_betas 43 Layer, value_heads 44 ValueHeads,
        policy_heads 45 PolicyHeads""",
    "OnnxModel": """
        model 1 bytes, data_type 2 int32, input_planes 3 bytes, output_value 4 bytes, output_wdl 5 bytes,
        output_policy 6 bytes, output_mlh 7 bytes""",
    "Net": """
        magic 1 fixed32, license 2 bytes, min_version 3 EngineVersion, format 4 Format,
        training_params 5 TrainingParams, weights 10 Weights, onnx_model 11 OnnxModel""",
}


def _build_pool() -> descriptor_pool.DescriptorPool:
    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "uint32": field_type.TYPE_UINT32,
        "int32": field_type.TYPE_INT32,
        "fixed32": field_type.TYPE_FIXED32,
        "float": field_type.TYPE_FLOAT,
        "bytes": field_type.TYPE_BYTES,
    }
    file = descriptor_pb2.FileDescriptorProto(name="wavefront/lc0.proto", package=_PACKAGE, syntax="proto2")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field in fields.split(","):
            name, number, kind = field.split()
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            added = message.field.add(name=name, number=int(number))
            added.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in scalars:
                added.type = scalars[kind]
            else:
                added.type = field_type.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _build_pool()

Message = Any
"""A message of the schema. Its fields exist only at run time, unknown to the type checker."""


def new_message(name: str) -> Message:
    """Return an empty message of the schema, e.g. `new_message("Net")`."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


MAGIC = 0x1C0
"""`Net.magic` of every lc0 network file."""


class WeightsEncoding(IntEnum):
    """Number format of a Layer's params (`Layer.encoding`, `Format.weights_encoding`); little-endian."""

    LINEAR16 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT32 = 4


class InputFormat(IntEnum):
    """`NetworkFormat.input`: the input planes of the network."""

    CLASSICAL_112 = 1
    CASTLING_PLANE_112 = 2
    CANONICAL_112 = 3
    CANONICAL_HECTOPLIES_112 = 4
    CANONICAL_V2_112 = 5
    CANONICAL_HECTOPLIES_ARMAGEDDON_112 = 132
    CANONICAL_V2_ARMAGEDDON_112 = 133


class Structure(IntEnum):
    """`NetworkFormat.network`."""

    CLASSICAL = 1
    SE = 2
    CLASSICAL_WITH_HEADS = 3
    SE_WITH_HEADS = 4
    ONNX = 5
    ATTENTION_BODY = 6
    ATTENTION_BODY_MULTIHEAD = 7
    LEGACY_MULTIHEAD = 134


class PolicyFormat(IntEnum):
    """`NetworkFormat.policy`."""

    CLASSICAL = 1
    CONVOLUTION = 2
    ATTENTION = 3


class ValueFormat(IntEnum):
    """`NetworkFormat.value`: one tanh output, or win, draw and loss."""

    CLASSICAL = 1
    WDL = 2


class MovesLeftFormat(IntEnum):
    """`NetworkFormat.moves_left`."""

    NONE = 0
    V1 = 1


class InputEmbedding(IntEnum):
    """`NetworkFormat.input_embedding`: what an attention body adds to the planes of a square."""

    NONE = 0
    PE_MAP = 1
    PE_DENSE = 2

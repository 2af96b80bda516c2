# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads an lc0 network file as a NetworkSpec."""

from __future__ import annotations

from concurrent.futures import Future
from os import PathLike
from pathlib import Path

import numpy as np

from evaluator.network import spec
from evaluator.network.container import SizeLimit, read_container
from evaluator.network.errors import NetworkError
from evaluator.network.fields import Fields
from evaluator.network.header import Header, read_header
from evaluator.network.heads import read_moves_left, read_policy, read_value
from evaluator.network.layers import EncoderOptions, read_encoders
from evaluator.network.schema import InputEmbedding, Message
from protocol.batch import PLANES
from protocol.common.folders import expanded
from protocol.common.included import INCLUDED_NETWORKS
from protocol.common.published import network_of_user, remedy

_NETWORKS = Path(__file__).resolve().parents[1] / "networks"

SHIPPED_NETWORKS = {name: _NETWORKS / f"{name}.pb.gz" for name in INCLUDED_NETWORKS}
"""The files of the included networks by name."""

SHIPPED_NETWORK = SHIPPED_NETWORKS["wavefront-cpu"]
"""Default network on CPUs."""

SHIPPED_GPU_NETWORK = SHIPPED_NETWORKS["wavefront-gpu"]
"""Default network on GPUs, which is larger."""


def network_file(network: str | PathLike[str]) -> Path:
    """Return the file of a network named in settings: a path, or the name of an included network
    (`wavefront-cpu`, `wavefront-gpu`; `shipped` means the former) or one in the user's folder, such as
    `maia-1500`. An existing file of that name takes precedence."""
    path = expanded(network)
    if path.is_file():
        return path
    name = "wavefront-cpu" if str(network) == "shipped" else str(network)
    return SHIPPED_NETWORKS.get(name) or network_of_user(name) or path


def load_network(
    path: str | PathLike[str],
    *,
    policy_head: str | None = None,
    value_head: str | None = None,
    limits: SizeLimit | None = None,
) -> spec.NetworkSpec:
    """Read an lc0 network file (gzip or plain protobuf), or an included network by name (`network_file`).

    policy_head: vanilla, optimistic, soft or opponent (default: vanilla). value_head: winner, q or st
    (default: winner). If the default head is missing, the file's first head is used. limits: of the
    decompressed size.

    Raises NetworkError for a file that is missing, damaged, truncated, oversized, inconsistent or
    unsupported, and for a missing head. The message starts with the path and names the field at fault.
    """
    path = network_file(path)
    try:
        net, digest, size = read_container(path, limits)
        return _read(net, path, digest, size, policy_head, value_head)
    except NetworkError as error:
        hint = "" if path.is_file() else remedy(path.name)
        raise NetworkError(f"{path}: {error}{hint}") from None
    except MemoryError:
        raise NetworkError(f"{path}: this machine has not enough memory for the network") from None


def _read(
    net: Message,
    path: Path,
    digest: Future[str],
    size: int,
    policy_head: str | None,
    value_head: str | None,
) -> spec.NetworkSpec:
    header = read_header(net)
    weights = Fields(net.weights, "weights")
    body: spec.ResidualTower | spec.AttentionBody
    if header.attention_body:
        body = _attention_body(weights, header)
        width = len(body.embedding.biases)
    else:
        body = _residual_tower(weights, header)
        width = len(body.input.biases)
    policy = read_policy(weights, header, width, policy_head)
    value = read_value(weights, header, width, value_head)
    moves_left = read_moves_left(weights, header, width)
    name = path.name
    for suffix in (".gz", ".pb"):
        name = name.removesuffix(suffix)
    return spec.NetworkSpec(
        name=name,
        content_hash=digest.result(),
        input_format=header.input,
        body=body,
        policy=policy.head,
        value=value.head,
        moves_left=moves_left,
        policy_head=policy.name,
        value_head=value.name,
        policy_heads=policy.names,
        value_heads=value.names,
        info=spec.FileInfo(
            path=str(path),
            bytes=size,
            min_version=(net.min_version.major, net.min_version.minor, net.min_version.patch),
            license=_text(net.license),
            training={
                field.name: _text(value) if isinstance(value, bytes) else value
                for field, value in net.training_params.ListFields()
            },
            encodings=tuple(sorted(weights.encodings)),
            repairs=header.repairs,
            structure=header.structure,
        ),
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def _residual_tower(weights: Fields, header: Header) -> spec.ResidualTower:
    first = weights.child("input").convolution(PLANES, 3, header.activation)
    filters = len(first.biases)
    blocks = []
    for block in weights.children("residual"):
        conv1 = block.child("conv1").convolution(filters, 3, header.activation)
        conv2 = block.child("conv2").convolution(len(conv1.biases), 3)
        if len(conv2.biases) != filters:
            raise NetworkError(
                f"{block.name('conv2')}: {len(conv2.biases)} outputs, expected the tower's {filters}"
            )
        se = None
        if block.message.HasField("se"):
            unit = block.child("se")
            squeeze_biases = unit.values("b1")
            se = spec.SEUnit(
                squeeze=spec.Dense(
                    unit.array("w1", len(squeeze_biases), filters), squeeze_biases, header.activation
                ),
                excite=spec.Dense(
                    unit.array("w2", 2 * filters, len(squeeze_biases)), unit.array("b2", 2 * filters)
                ),
            )
        blocks.append(spec.ResidualBlock(conv1, conv2, se, header.activation))
    return spec.ResidualTower(first, tuple(blocks))


def _attention_body(weights: Fields, header: Header) -> spec.AttentionBody:
    count = len(weights.message.encoder)
    if count == 0:
        raise NetworkError("weights.encoder: missing; an attention body has at least one encoder")
    tower = _residual_tower(weights, header) if len(weights.message.residual) else None

    preprocess = None
    if tower is not None:
        position, inputs = InputEmbedding.NONE, len(tower.input.biases)
    else:
        position, inputs = _position_part(weights, header)
        if position is InputEmbedding.PE_DENSE:
            preprocess = weights.dense("ip_emb_preproc", 64 * 12)
            if len(preprocess.biases) % 64:
                raise NetworkError(
                    f"weights.ip_emb_preproc_b: {len(preprocess.biases)} values, expected a multiple of 64"
                )
            inputs = PLANES + len(preprocess.biases) // 64
    embedding = weights.dense("ip_emb", inputs, header.activation)
    width = len(embedding.biases)

    gating = None
    if weights.has("ip_mult_gate") and weights.has("ip_add_gate"):
        # The file has [channel][square]; tokens are [square][channel].
        gating = spec.Gating(
            np.ascontiguousarray(weights.array("ip_mult_gate", width, 64).T),
            np.ascontiguousarray(weights.array("ip_add_gate", width, 64).T),
        )
    alpha = (2.0 * count) ** -0.25
    dense_embedding = header.embedding is InputEmbedding.PE_DENSE
    tail = None
    if dense_embedding:
        ffn = weights.child("ip_emb_ffn")
        dense1 = ffn.dense("dense1", width, header.ffn_activation)
        dense2 = ffn.dense("dense2", len(dense1.biases))
        if len(dense2.biases) != width:
            raise NetworkError(f"{ffn.name('dense2_b')}: {len(dense2.biases)} values, expected {width}")
        tail = spec.DenseEmbeddingTail(
            norm1=weights.norm("ip_emb_ln", width, 1e-3),
            ffn=spec.FeedForward(dense1, dense2),
            norm2=weights.norm("ip_emb_ffn_ln", width, 1e-3),
            alpha=alpha,
        )
    encoders = read_encoders(
        weights,
        weights.children("encoder"),
        EncoderOptions(
            width=width,
            heads=weights.message.headcount,
            headcount_name=weights.name("headcount"),
            ffn_activation=header.ffn_activation,
            smolgen_activation=header.smolgen_activation,
            alpha=alpha,
            epsilon=1e-3 if dense_embedding else 1e-6,
        ),
    )
    return spec.AttentionBody(tower, position, preprocess, embedding, tail, gating, encoders)


def _position_part(weights: Fields, header: Header) -> tuple[InputEmbedding, int]:
    """Return the position part of a token and the embedding's number of inputs.

    Old writers did not know the field and leave NONE; then the embedding's width decides.
    """
    position = header.embedding
    if position is InputEmbedding.NONE:
        outputs = len(weights.values("ip_emb_b"))
        if len(weights.values("ip_emb_w")) != outputs * PLANES:
            position = InputEmbedding.PE_MAP
    return position, PLANES + (64 if position is InputEmbedding.PE_MAP else 0)

# SPDX-License-Identifier: GPL-3.0-or-later
"""A network as plain data: the loader's result and every backend's input.

One frozen class per kind of layer. All values are explicit: batch norm is folded into the convolutions, and
every activation, epsilon, residual factor and head count is given. So no backend repeats lc0's rules about
defaults. All arrays are float32, C-contiguous and finite. C is a channel count, E an embedding width, D the
width of queries, keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.schema import InputEmbedding, InputFormat, PolicyFormat, Structure

FloatArray: TypeAlias = NDArray[np.float32]

"""How the inputs of a layer are rounded."""


class Activation(Enum):
    """An element-wise function; the names are those of lc0's `ActivationFunction`."""

    MISH = "mish"  # x tanh(log(1 + e^x))
    RELU = "relu"
    NONE = "none"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    SELU = "selu"
    SWISH = "swish"  # x sigmoid(x)
    RELU_SQUARED = "relu_squared"


@dataclass(frozen=True, slots=True)
class Dense:
    """y = weights @ x + biases, then the activation. weights [out, in], biases [out]. inputs: rounding of x,
    if any; set by backends (gpu.plan.fp8), not by files."""

    weights: FloatArray
    biases: FloatArray
    activation: Activation = Activation.NONE
    inputs: E4m3Inputs | None = None


@dataclass(frozen=True, slots=True)
class ConvBlock:
    """A convolution with its batch norm folded in. weights [out, in, k, k] with k 1 or 3 (same padding)."""

    weights: FloatArray
    biases: FloatArray
    activation: Activation = Activation.NONE


def _linear(*layers: Dense | ConvBlock) -> None:
    """Reject an activation where lc0 networks have none: backends fuse the following operations."""
    for layer in layers:
        if layer.activation is not Activation.NONE:
            raise ValueError(f"a layer of this place has no activation, not {layer.activation.value}")


@dataclass(frozen=True, slots=True)
class SEUnit:
    """Squeeze and excitation: z = excite(squeeze(mean over squares)), y -> sigmoid(z[:C]) y + z[C:]."""

    squeeze: Dense  # [C', C]
    excite: Dense  # [2 C, C']

    def __post_init__(self) -> None:
        _linear(self.excite)


@dataclass(frozen=True, slots=True)
class ResidualBlock:
    """x -> activation(se(conv2(conv1(x))) + x)."""

    conv1: ConvBlock
    conv2: ConvBlock
    se: SEUnit | None
    activation: Activation

    def __post_init__(self) -> None:
        _linear(self.conv2)


@dataclass(frozen=True, slots=True)
class ResidualTower:
    """The input convolution (112 -> C planes) and the residual blocks."""

    input: ConvBlock
    blocks: tuple[ResidualBlock, ...]


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """(x - mean) / sqrt(variance + epsilon) * gammas + betas, biased variance, over the last axis."""

    gammas: FloatArray
    betas: FloatArray
    epsilon: float


@dataclass(frozen=True, slots=True)
class Smolgen:
    """Attention logits computed from the whole position, added to q k / sqrt(depth) before the softmax.

    compress (each square) -> flatten squares x hidden -> dense1, norm1, dense2, norm2 -> [heads, gen] ->
    position weights [4096, gen] -> [heads, query square, key square]. position_weights is one array shared by
    all layers of a network.
    """

    compress: FloatArray  # [hidden, E]
    dense1: Dense
    norm1: LayerNorm
    dense2: Dense
    norm2: LayerNorm
    position_weights: FloatArray


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head self-attention over the 64 squares; head h owns elements h*D/heads onwards of q, k and v."""

    heads: int
    q: Dense  # [D, E]
    k: Dense
    v: Dense
    output: Dense  # [E, D]
    smolgen: Smolgen | None

    def __post_init__(self) -> None:
        _linear(self.q, self.k, self.v, self.output)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """dense2(dense1(x)); the activation is in dense1."""

    dense1: Dense
    dense2: Dense

    def __post_init__(self) -> None:
        _linear(self.dense2)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Post-norm: x = norm1(x + alpha attention(x)); x = norm2(x + alpha ffn(x))."""

    attention: Attention
    norm1: LayerNorm
    ffn: FeedForward
    norm2: LayerNorm
    alpha: float


@dataclass(frozen=True, slots=True)
class DenseEmbeddingTail:
    """Layers after the embedding and the gates of a PE_DENSE network: x = norm2(x + alpha ffn(x))."""

    norm1: LayerNorm  # before the gates
    ffn: FeedForward
    norm2: LayerNorm
    alpha: float


@dataclass(frozen=True, slots=True)
class Gating:
    """x[square, c] * multiply[square, c] + add[square, c]; both [64, E]."""

    multiply: FloatArray
    add: FloatArray


@dataclass(frozen=True, slots=True)
class AttentionBody:
    """Tokens (one per square) -> embedding -> encoders. Output [64, E].

    tower: None, or a residual tower whose output channels replace the input planes as tokens (without a
        position part). position: PE_MAP appends the fixed map of `policy_tables`, PE_DENSE the output of
        `preprocess` on the first 12 planes flattened as square*12 + plane, NONE nothing.
    """

    tower: ResidualTower | None
    position: InputEmbedding
    preprocess: Dense | None  # [64 C', 64*12]
    embedding: Dense
    tail: DenseEmbeddingTail | None
    gating: Gating | None
    encoders: tuple[EncoderLayer, ...]


@dataclass(frozen=True, slots=True)
class ClassicalPolicyHead:
    """1x1 convolution, flatten channel*64 + square, fully connected to the 1858 moves."""

    conv: ConvBlock
    dense: Dense


@dataclass(frozen=True, slots=True)
class ConvolutionPolicyHead:
    """Two 3x3 convolutions to 80 (at least 73) planes, whose elements `policy_tables` maps to moves."""

    conv1: ConvBlock
    conv2: ConvBlock


@dataclass(frozen=True, slots=True)
class AttentionPolicyHead:
    """Move from -> to: q[from] . k[to] / sqrt(D), with offsets for promotions to queen, rook and bishop.

    promotion: [4, D]. With o = promotion @ k on the last rank, piece c there gets + o[c] + o[3] (not scaled).
    """

    embedding: Dense
    encoders: tuple[EncoderLayer, ...]
    q: Dense
    k: Dense
    promotion: FloatArray

    def __post_init__(self) -> None:
        _linear(self.q, self.k)


PolicyHead: TypeAlias = ClassicalPolicyHead | ConvolutionPolicyHead | AttentionPolicyHead


@dataclass(frozen=True, slots=True)
class ValueHead:
    """embedding (1x1 convolution or per-square dense), flatten, dense1, dense2.

    dense2 has 3 outputs, W D L before the softmax (wdl), or 1 through tanh. A convolution is flattened as
    channel*64 + square, a dense embedding as square*C + channel.
    """

    embedding: ConvBlock | Dense
    dense1: Dense
    dense2: Dense

    @property
    def wdl(self) -> bool:
        return len(self.dense2.biases) == 3


@dataclass(frozen=True, slots=True)
class MovesLeftHead:
    """Like ValueHead, with one output in plies after a relu."""

    embedding: ConvBlock | Dense
    dense1: Dense
    dense2: Dense


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The origin of a network, for `describe`; not needed by backends."""

    path: str
    bytes: int
    min_version: tuple[int, int, int]
    license: str
    training: dict[str, float | int | str]
    encodings: tuple[str, ...]
    repairs: tuple[str, ...]  # the loader's changes to the header of an older file
    structure: Structure


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """An lc0 network with one policy head and one value head selected.

    content_hash: SHA-256 of the file, hexadecimal. policy_heads, value_heads: names of all heads in the file.
    policy_head, value_head: names of the selected ones, `policy` and `value`.
    """

    name: str
    content_hash: str
    input_format: InputFormat
    body: ResidualTower | AttentionBody
    policy: PolicyHead
    value: ValueHead
    moves_left: MovesLeftHead | None
    policy_head: str
    value_head: str
    policy_heads: tuple[str, ...]
    value_heads: tuple[str, ...]
    info: FileInfo = field(repr=False)

    @property
    def policy_format(self) -> PolicyFormat:
        match self.policy:
            case ClassicalPolicyHead():
                return PolicyFormat.CLASSICAL
            case ConvolutionPolicyHead():
                return PolicyFormat.CONVOLUTION
            case AttentionPolicyHead():
                return PolicyFormat.ATTENTION

# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of any shape with random weights, for testing every layer and benchmarks without real files.

The weights are scaled so that activations keep their magnitude through the layers, and outputs have the
magnitude of a trained network's. Their chess content is meaningless.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from evaluator.network import spec
from evaluator.network.errors import NetworkError
from evaluator.network.policy_tables import CONVOLUTION_PLANES
from evaluator.network.schema import InputEmbedding, InputFormat, PolicyFormat, Structure
from protocol.batch import PLANES, POLICY_SIZE


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """The shape of a network. blocks: residual blocks. layers: encoders; 0 for a residual network.

    width: filters of the tower and embedding of the body. model: width of q, k and v, None for width.
    smolgen: (hidden, dense1, gen). dense_embedding: C' of PE_DENSE, 0 for PE_MAP. se: width of the squeeze, 0
    for none.
    """

    width: int
    blocks: int = 0
    layers: int = 0
    heads: int = 4
    ffn: int = 256
    model: int | None = None
    smolgen: tuple[int, int, int] | None = None
    dense_embedding: int = 0
    gating: bool = True
    se: int = 0
    policy: PolicyFormat = PolicyFormat.ATTENTION
    policy_width: int = 64
    policy_embedding: int | None = None
    policy_layers: int = 0
    value_channels: int = 32
    value_hidden: int = 128
    wdl: bool = True
    moves_left: bool = True
    activation: spec.Activation = spec.Activation.MISH
    ffn_activation: spec.Activation = spec.Activation.RELU_SQUARED
    smolgen_activation: spec.Activation = spec.Activation.SWISH
    input_format: InputFormat = InputFormat.CLASSICAL_112
    multihead: bool = False


SHAPES = {
    "tiny-resnet": NetworkShape(
        16, blocks=2, se=8, activation=spec.Activation.RELU, policy=PolicyFormat.CONVOLUTION
    ),
    "tiny-attention": NetworkShape(
        32, layers=2, ffn=48, smolgen=(4, 16, 8), policy_width=32, value_channels=8
    ),
    "maia": NetworkShape(
        64,
        blocks=6,
        se=8,
        activation=spec.Activation.RELU,
        policy=PolicyFormat.CONVOLUTION,
        wdl=False,
        moves_left=False,
    ),
    "resnet-64x4": NetworkShape(
        64, blocks=4, se=8, activation=spec.Activation.RELU, policy=PolicyFormat.CONVOLUTION
    ),
    "resnet-classical": NetworkShape(
        64, blocks=6, se=8, activation=spec.Activation.RELU, policy=PolicyFormat.CLASSICAL
    ),
    "attention-128x4": NetworkShape(128, layers=4, policy_width=128, value_channels=32),
    "t80": NetworkShape(
        512,
        layers=15,
        heads=8,
        ffn=1024,
        policy_width=512,
        ffn_activation=spec.Activation.MISH,
        input_format=InputFormat.CANONICAL_HECTOPLIES_112,
    ),
    "t82": NetworkShape(
        768,
        layers=15,
        heads=24,
        ffn=1024,
        smolgen=(32, 256, 256),
        policy_width=768,
        input_format=InputFormat.CANONICAL_HECTOPLIES_112,
    ),
    "bt4": NetworkShape(
        1024,
        layers=15,
        heads=32,
        ffn=1536,
        smolgen=(32, 256, 256),
        dense_embedding=512,
        policy_width=1024,
        value_channels=128,
        ffn_activation=spec.Activation.MISH,
        input_format=InputFormat.CANONICAL_HECTOPLIES_112,
        multihead=True,
    ),
}
"""Shapes by name: two tiny ones with every usual layer, and the sizes of networks in use."""


def random_network(shape: NetworkShape | str, seed: int = 0) -> spec.NetworkSpec:
    """Return a network of a shape, or of a name in SHAPES. Equal arguments give equal weights.

    Raises NetworkError for an unknown name.
    """
    if isinstance(shape, str):
        if shape not in SHAPES:
            raise NetworkError(f"there is no network shape {shape!r}; known are {', '.join(SHAPES)}")
        name, shape = shape, SHAPES[shape]
    else:
        name = "random"
    make = _Maker(shape, np.random.default_rng(seed))
    body: spec.ResidualTower | spec.AttentionBody = make.attention_body() if shape.layers else make.tower()
    resnet = isinstance(body, spec.ResidualTower)
    structure = Structure.ATTENTION_BODY_MULTIHEAD if shape.multihead else Structure.ATTENTION_BODY
    if resnet:
        structure = Structure.SE_WITH_HEADS if shape.se else Structure.CLASSICAL_WITH_HEADS
    return spec.NetworkSpec(
        name=name,
        content_hash=hashlib.sha256(f"{shape}{seed}".encode()).hexdigest(),
        input_format=shape.input_format,
        body=body,
        policy=make.policy(resnet),
        value=make.value(resnet),
        moves_left=make.moves_left(resnet) if shape.moves_left else None,
        policy_head="vanilla",
        value_head="winner",
        policy_heads=("vanilla",),
        value_heads=("winner",),
        info=spec.FileInfo("", 0, (0, 0, 0), "", {}, (), (), structure),
    )


class _Maker:
    def __init__(self, shape: NetworkShape, rng: np.random.Generator) -> None:
        self.shape = shape
        self.rng = rng
        self.position_weights: spec.FloatArray | None = None

    def normal(self, *size: int, scale: float) -> spec.FloatArray:
        return self.rng.standard_normal(size, dtype=np.float32) * np.float32(scale)

    def dense(
        self, inputs: int, outputs: int, activation: spec.Activation = spec.Activation.NONE, gain: float = 1.0
    ) -> spec.Dense:
        weights = self.normal(outputs, inputs, scale=gain * inputs**-0.5)
        return spec.Dense(weights, self.normal(outputs, scale=0.1), activation)

    def convolution(
        self,
        inputs: int,
        outputs: int,
        size: int,
        activation: spec.Activation = spec.Activation.NONE,
        gain: float = 1.0,
    ) -> spec.ConvBlock:
        scale = gain * (inputs * size * size) ** -0.5
        return spec.ConvBlock(
            self.normal(outputs, inputs, size, size, scale=scale), self.normal(outputs, scale=0.1), activation
        )

    def norm(self, width: int, epsilon: float) -> spec.LayerNorm:
        return spec.LayerNorm(1 + self.normal(width, scale=0.1), self.normal(width, scale=0.1), epsilon)

    def feed_forward(self, width: int, activation: spec.Activation) -> spec.FeedForward:
        hidden = self.shape.ffn
        return spec.FeedForward(self.dense(width, hidden, activation), self.dense(hidden, width))

    def tower(self) -> spec.ResidualTower:
        shape, width, act = self.shape, self.shape.width, self.shape.activation
        blocks = []
        for _ in range(shape.blocks):
            se = None
            if shape.se:
                se = spec.SEUnit(self.dense(width, shape.se, act), self.dense(shape.se, 2 * width))
            # Small second convolutions keep the skip connection from growing with depth.
            second = self.convolution(width, width, 3, gain=0.5)
            blocks.append(spec.ResidualBlock(self.convolution(width, width, 3, act), second, se, act))
        # The large gain compensates for the few input bits that are set.
        return spec.ResidualTower(self.convolution(PLANES, width, 3, act, gain=2.0), tuple(blocks))

    def attention_body(self) -> spec.AttentionBody:
        shape, width = self.shape, self.shape.width
        alpha = (2.0 * shape.layers) ** -0.25
        tower = self.tower() if shape.blocks else None
        preprocess = tail = None
        if tower is not None:
            position, inputs = InputEmbedding.NONE, width
        elif shape.dense_embedding:
            position, inputs = InputEmbedding.PE_DENSE, PLANES + shape.dense_embedding
            preprocess = self.dense(64 * 12, 64 * shape.dense_embedding, gain=4.0)
        else:
            position, inputs = InputEmbedding.PE_MAP, PLANES + 64
        if shape.dense_embedding:
            ffn = self.feed_forward(width, shape.ffn_activation)
            tail = spec.DenseEmbeddingTail(self.norm(width, 1e-3), ffn, self.norm(width, 1e-3), alpha)
        gating = None
        if shape.gating:
            gating = spec.Gating(1 + self.normal(64, width, scale=0.2), self.normal(64, width, scale=0.2))
        return spec.AttentionBody(
            tower=tower,
            position=position,
            preprocess=preprocess,
            embedding=self.dense(inputs, width, shape.activation, gain=2.0),
            tail=tail,
            gating=gating,
            encoders=tuple(
                self.encoder(width, alpha, 1e-3 if shape.dense_embedding else 1e-6, shape.ffn_activation)
                for _ in range(shape.layers)
            ),
        )

    def encoder(
        self, width: int, alpha: float, epsilon: float, activation: spec.Activation
    ) -> spec.EncoderLayer:
        shape = self.shape
        model = shape.model or width
        smolgen = self.smolgen(width) if shape.smolgen else None
        return spec.EncoderLayer(
            attention=spec.Attention(
                heads=shape.heads,
                q=self.dense(width, model),
                k=self.dense(width, model),
                v=self.dense(width, model),
                output=self.dense(model, width),
                smolgen=smolgen,
            ),
            norm1=self.norm(width, epsilon),
            ffn=self.feed_forward(width, activation),
            norm2=self.norm(width, epsilon),
            alpha=alpha,
        )

    def smolgen(self, width: int) -> spec.Smolgen:
        shape = self.shape
        assert shape.smolgen is not None
        hidden, dense1, gen = shape.smolgen
        if self.position_weights is None:
            self.position_weights = self.normal(4096, gen, scale=gen**-0.5)
        act = shape.smolgen_activation
        return spec.Smolgen(
            compress=self.normal(hidden, width, scale=width**-0.5),
            dense1=self.dense(64 * hidden, dense1, act),
            norm1=self.norm(dense1, 1e-3),
            dense2=self.dense(dense1, shape.heads * gen, act),
            norm2=self.norm(shape.heads * gen, 1e-3),
            position_weights=self.position_weights,
        )

    def policy(self, resnet: bool) -> spec.PolicyHead:
        shape, width, act = self.shape, self.shape.width, self.shape.activation
        match shape.policy:
            case PolicyFormat.CLASSICAL:
                return spec.ClassicalPolicyHead(
                    self.convolution(width, 32, 1, act), self.dense(32 * 64, POLICY_SIZE)
                )
            case PolicyFormat.CONVOLUTION:
                planes = CONVOLUTION_PLANES + 7  # as in real files, the last 7 unused
                return spec.ConvolutionPolicyHead(
                    self.convolution(width, width, 3, act), self.convolution(width, planes, 3)
                )
            case PolicyFormat.ATTENTION:
                depth = shape.policy_width
                embedding = shape.policy_embedding or width
                activation = spec.Activation.SELU if resnet else act
                ffn_activation = spec.Activation.SELU if resnet else shape.ffn_activation
                return spec.AttentionPolicyHead(
                    embedding=self.dense(width, embedding, activation),
                    encoders=tuple(
                        self.encoder(embedding, 1.0, 1e-6, ffn_activation) for _ in range(shape.policy_layers)
                    ),
                    q=self.dense(embedding, depth),
                    k=self.dense(embedding, depth),
                    promotion=self.normal(4, depth, scale=depth**-0.5),
                )

    def _embedding(self, resnet: bool, channels: int) -> spec.ConvBlock | spec.Dense:
        width, act = self.shape.width, self.shape.activation
        return self.convolution(width, channels, 1, act) if resnet else self.dense(width, channels, act)

    def value(self, resnet: bool) -> spec.ValueHead:
        shape = self.shape
        last = self.dense(shape.value_hidden, 3 if shape.wdl else 1)
        return spec.ValueHead(
            embedding=self._embedding(resnet, shape.value_channels),
            dense1=self.dense(64 * shape.value_channels, shape.value_hidden, shape.activation),
            dense2=last if shape.wdl else replace(last, activation=spec.Activation.TANH),
        )

    def moves_left(self, resnet: bool) -> spec.MovesLeftHead:
        shape, channels = self.shape, 8
        last = self.dense(shape.value_hidden, 1, spec.Activation.RELU, gain=20.0)
        return spec.MovesLeftHead(
            embedding=self._embedding(resnet, channels),
            dense1=self.dense(64 * channels, shape.value_hidden, shape.activation),
            dense2=replace(last, biases=last.biases + np.float32(60)),
        )

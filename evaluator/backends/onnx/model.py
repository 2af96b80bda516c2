"""NetworkSpec -> ONNX graph, of standard operators only.

What can be folded into weights is: the attention scale into q, the residual factor alpha into the last matrix
of a sublayer, the constant position part of a PE_MAP embedding into one bias per square. Tokens are kept as
[n*64, C] between layers, because onnxruntime runs a 2-D Gemm with its bias (and a relu) in one pass.
onnxruntime's own fused operators were tried and gain nothing on the CPU: MultiHeadAttention and FusedMatMul
are even, SkipLayerNormalization is six times slower than an addition and a norm.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from evaluator.backends.onnx.graph import Graph
from evaluator.network.policy_tables import (
    CONVOLUTION_PLANES,
    attention_map,
    convolution_map,
    position_encoding,
    source_of_policy,
)
from evaluator.network.schema import InputEmbedding
from evaluator.network.spec import (
    Activation,
    Attention,
    AttentionBody,
    AttentionPolicyHead,
    ClassicalPolicyHead,
    ConvBlock,
    ConvolutionPolicyHead,
    Dense,
    EncoderLayer,
    FeedForward,
    FloatArray,
    LayerNorm,
    MovesLeftHead,
    NetworkSpec,
    PolicyHead,
    ResidualTower,
    SEUnit,
    Smolgen,
    ValueHead,
)
from protocol.batch import PLANES, POLICY_SIZE


def build_model(network: NetworkSpec, *, packed: bool, int8: bool = False) -> onnx.ModelProto:
    """The network as an ONNX model with a dynamic batch n.

    Input: `planes` float32 [n, 112, 8, 8]; or, if packed, `bits` uint8 [n, 112, 64] of zeros and ones and
    `values` float32 [n, 112, 1] to multiply them with. Outputs: `policy` [n, 1858] raw logits; `wdl` [n, 3]
    probabilities or `value` [n, 1]; `moves_left` [n, 1] plies where the network has that head. int8: quantise
    the encoders' products; the model then needs onnxruntime. Embedding and heads stay as they are: the
    embedding alone would cost ten times the error of everything else, because of the rule-50 plane's range.
    """
    g = Graph(int8=int8)
    planes = _input(g, packed)
    match network.body:
        case ResidualTower() as tower:
            x = _tower(g, tower, g.reshape(planes, 0, PLANES, 8, 8))
            tokens = False
        case AttentionBody() as body:
            x = _attention_body(g, body, planes)
            tokens = True
    g.output(_policy(g, network.policy, x, tokens), "policy", ["n", POLICY_SIZE])
    value = _flat_head(g, network.value, x)
    if network.value.wdl:
        g.output(g.op("Softmax", value, axis=-1), "wdl", ["n", 3])
    else:
        g.output(value, "value", ["n", 1])
    if network.moves_left is not None:
        g.output(_flat_head(g, network.moves_left, x), "moves_left", ["n", 1])
    metadata = {
        "network": network.name,
        "network_sha256": network.content_hash,
        "input_format": str(network.input_format.value),
        "policy_head": network.policy_head,
        "value_head": network.value_head,
    }
    return g.model(network.name, metadata)


def _input(g: Graph, packed: bool) -> str:
    """[n, 112, 64] float32."""
    if not packed:
        return g.reshape(g.input("planes", TensorProto.FLOAT, ["n", PLANES, 8, 8]), 0, PLANES, 64)
    bits = g.input("bits", TensorProto.UINT8, ["n", PLANES, 64])
    values = g.input("values", TensorProto.FLOAT, ["n", PLANES, 1])
    return g.op("Mul", g.op("Cast", bits, to=TensorProto.FLOAT), values)


# --- bodies -------------------------------------------------------------------------------------------------


def _tower(g: Graph, tower: ResidualTower, planes: str) -> str:
    """[n, 112, 8, 8] -> [n, C, 8, 8]."""
    x = _convolution(g, tower.input, planes)
    for block in tower.blocks:
        y = _convolution(g, block.conv2, _convolution(g, block.conv1, x))
        if block.se is not None:
            y = _squeeze_excitation(g, block.se, y)
        x = _activate(g, block.activation, g.op("Add", y, x))
    return x


def _squeeze_excitation(g: Graph, unit: SEUnit, y: str) -> str:
    pooled = g.reshape(g.op("GlobalAveragePool", y), 0, -1)
    z = g.reshape(_dense(g, unit.excite, _dense(g, unit.squeeze, pooled)), 0, -1, 1, 1)
    channels = len(unit.excite.biases) // 2
    scale = g.op("Sigmoid", g.slice(z, 1, 0, channels))
    return g.op("Add", g.op("Mul", scale, y), g.slice(z, 1, channels, 2 * channels))


def _attention_body(g: Graph, body: AttentionBody, planes: str) -> str:
    """[n, 112, 64] -> [n*64, E]."""
    weights, square_bias = body.embedding.weights, body.embedding.biases[None, :]
    if body.tower is not None:
        planes = _tower(g, body.tower, g.reshape(planes, 0, PLANES, 8, 8))
        tokens = _tokens_of(g, planes, len(body.tower.input.biases))
    else:
        tokens = g.transpose(planes, 0, 2, 1)
        if body.position is InputEmbedding.PE_MAP:
            # W [planes, position] = W_planes planes + (W_position position), and the second term is constant.
            square_bias = square_bias + position_encoding() @ weights[:, PLANES:].T
            weights = weights[:, :PLANES]
        if body.preprocess is not None:
            pieces = g.reshape(g.slice(tokens, 2, 0, 12), 0, 64 * 12)
            position = g.reshape(_dense(g, body.preprocess, pieces), 0, 64, -1)
            tokens = g.op("Concat", tokens, position, axis=2)
        tokens = g.reshape(tokens, -1, weights.shape[1])
    width = len(body.embedding.biases)
    if len(square_bias) == 1:
        x = _linear(g, tokens, weights, square_bias[0])
    else:
        x = g.reshape(_linear(g, tokens, weights, None), -1, 64, width)
        x = g.reshape(g.op("Add", x, g.constant(square_bias)), -1, width)
    x = _activate(g, body.embedding.activation, x)
    if body.tail is not None:
        x = _norm(g, body.tail.norm1, x)
    if body.gating is not None:
        x = g.reshape(x, -1, 64, width)
        x = g.op("Add", g.op("Mul", x, g.constant(body.gating.multiply)), g.constant(body.gating.add))
        x = g.reshape(x, -1, width)
    if body.tail is not None:
        x = _add_norm(g, body.tail.norm2, x, _feed_forward(g, body.tail.ffn, x, body.tail.alpha))
    for layer in body.encoders:
        x = _encoder(g, layer, x)
    return x


def _encoder(g: Graph, layer: EncoderLayer, x: str) -> str:
    x = _add_norm(g, layer.norm1, x, _attention(g, layer.attention, x, layer.alpha))
    return _add_norm(g, layer.norm2, x, _feed_forward(g, layer.ffn, x, layer.alpha))


def _attention(g: Graph, layer: Attention, x: str, alpha: float) -> str:
    """[n*64, E] -> [n*64, E], multiplied by alpha."""
    model, heads = len(layer.q.biases), layer.heads
    depth = model // heads
    scale = np.float32(depth**-0.5)

    # Three products: a single one for q, k and v has to be taken apart again, which costs more than it saves.
    def split(weights: FloatArray, biases: FloatArray, *order: int) -> str:
        return g.transpose(
            g.reshape(_linear(g, x, weights, biases, quantise=True), -1, 64, heads, depth), *order
        )

    q = split(layer.q.weights * scale, layer.q.biases * scale, 0, 2, 1, 3)  # [n, heads, 64, depth]
    k = split(layer.k.weights, layer.k.biases, 0, 2, 3, 1)  # [n, heads, depth, 64]
    v = split(layer.v.weights, layer.v.biases, 0, 2, 1, 3)
    logits = g.op("MatMul", q, k)
    if layer.smolgen is not None:
        logits = g.op("Add", logits, _smolgen(g, layer.smolgen, heads, x))
    mixed = g.op("MatMul", g.op("Softmax", logits, axis=-1), v)
    mixed = g.reshape(g.transpose(mixed, 0, 2, 1, 3), -1, model)
    factor = np.float32(alpha)
    return _linear(g, mixed, layer.output.weights * factor, layer.output.biases * factor, quantise=True)


def _smolgen(g: Graph, layer: Smolgen, heads: int, x: str) -> str:
    """[n*64, E] -> [n, heads, 64, 64]."""
    hidden = len(layer.compress)
    compressed = g.reshape(_linear(g, x, layer.compress, None), -1, 64 * hidden)
    y = _norm(g, layer.norm1, _dense(g, layer.dense1, compressed))
    y = _norm(g, layer.norm2, _dense(g, layer.dense2, y))
    gen = layer.position_weights.shape[1]
    y = _linear(g, g.reshape(y, -1, gen), layer.position_weights, None, quantise=True)
    return g.reshape(y, -1, heads, 64, 64)


# --- heads --------------------------------------------------------------------------------------------------


def _policy(g: Graph, head: PolicyHead, x: str, tokens: bool) -> str:
    """The body's output -> [n, 1858]."""
    match head:
        case ClassicalPolicyHead():
            return _dense(g, head.dense, g.reshape(_convolution(g, head.conv, x), 0, -1))
        case ConvolutionPolicyHead():
            used = ConvBlock(head.conv2.weights[:CONVOLUTION_PLANES], head.conv2.biases[:CONVOLUTION_PLANES])
            y = g.reshape(_convolution(g, used, _convolution(g, head.conv1, x)), 0, -1)
            return _gather(g, y, source_of_policy(convolution_map()))
        case AttentionPolicyHead():
            y = x if tokens else _tokens_of(g, x, head.embedding.weights.shape[1])
            return _attention_policy(g, head, y)


def _attention_policy(g: Graph, head: AttentionPolicyHead, x: str) -> str:
    y = _dense(g, head.embedding, x)
    for layer in head.encoders:
        y = _encoder(g, layer, y)
    depth = len(head.q.biases)
    scale = np.float32(depth**-0.5)
    q = g.reshape(_linear(g, y, head.q.weights * scale, head.q.biases * scale), -1, 64, depth)
    k = g.reshape(_linear(g, y, head.k.weights, head.k.biases), -1, 64, depth)
    moves = g.op("MatMul", q, g.transpose(k, 0, 2, 1))
    promotion = head.promotion[:3] + head.promotion[3:]
    offsets = g.op("MatMul", g.slice(k, 1, 56, 64), g.constant(promotion.T))  # [n, to-file, piece]
    seventh = g.slice(g.slice(moves, 1, 48, 56), 2, 56, 64)
    promotions = g.op("Add", g.reshape(seventh, 0, 8, 8, 1), g.reshape(offsets, 0, 1, 8, 3))
    entries = g.op("Concat", g.reshape(moves, 0, 4096), g.reshape(promotions, 0, 192), axis=1)
    return _gather(g, entries, source_of_policy(attention_map()))


def _flat_head(g: Graph, head: ValueHead | MovesLeftHead, x: str) -> str:
    """Embedding, flatten, two dense layers -> [n, outputs]."""
    channels = len(head.embedding.biases)
    if isinstance(head.embedding, ConvBlock):
        y = _convolution(g, head.embedding, x)
    else:
        y = _dense(g, head.embedding, x)
    return _dense(g, head.dense2, _dense(g, head.dense1, g.reshape(y, -1, 64 * channels)))


def _gather(g: Graph, entries: str, source: NDArray[np.int32]) -> str:
    return g.op("Gather", entries, g.constant(source.astype(np.int64)), axis=1)


# --- layers -------------------------------------------------------------------------------------------------


def _linear(
    g: Graph, x: str, weights: FloatArray, biases: FloatArray | None, *, quantise: bool = False
) -> str:
    """[rows, in] -> [rows, out]; weights [out, in]. quantise: where the backend was asked for int8."""
    if quantise and g.int8:
        return _quantised(g, x, weights, biases)
    # Gemm with transB takes the file's layout as it is; onnxruntime packs it once when the session opens.
    inputs = [x, g.constant(weights)] + ([] if biases is None else [g.constant(biases)])
    return g.op("Gemm", *inputs, transB=1)


def _quantised(g: Graph, x: str, weights: FloatArray, biases: FloatArray | None) -> str:
    """x in 8 bits with one scale for the whole batch, found as it runs; weights with one scale per output."""
    scale = np.maximum(np.abs(weights).max(axis=1), np.float32(1e-12)) / np.float32(127)
    integers = np.rint(weights / scale[:, None]).astype(np.int8)
    inputs = [x, g.constant(np.ascontiguousarray(integers.T)), g.constant(scale)]
    if biases is not None:
        inputs += ["", g.constant(biases)]
    return g.op("DynamicQuantizeMatMul", *inputs, domain="com.microsoft")


def _dense(g: Graph, layer: Dense, x: str) -> str:
    return _activate(g, layer.activation, _linear(g, x, layer.weights, layer.biases))


def _feed_forward(g: Graph, layer: FeedForward, x: str, alpha: float) -> str:
    """Multiplied by alpha."""
    factor = np.float32(alpha)
    hidden = _linear(g, x, layer.dense1.weights, layer.dense1.biases, quantise=True)
    hidden = _activate(g, layer.dense1.activation, hidden)
    weights, biases = layer.dense2.weights * factor, layer.dense2.biases * factor
    return _linear(g, hidden, weights, biases, quantise=True)


def _convolution(g: Graph, layer: ConvBlock, x: str) -> str:
    size = layer.weights.shape[2]
    edge = [size // 2] * 4
    y = g.op(
        "Conv", x, g.constant(layer.weights), g.constant(layer.biases), kernel_shape=[size, size], pads=edge
    )
    return _activate(g, layer.activation, y)


def _norm(g: Graph, layer: LayerNorm, x: str) -> str:
    return g.op(
        "LayerNormalization",
        x,
        g.constant(layer.gammas),
        g.constant(layer.betas),
        epsilon=layer.epsilon,
        axis=-1,
    )


def _add_norm(g: Graph, layer: LayerNorm, x: str, y: str) -> str:
    """norm(x + y)."""
    return _norm(g, layer, g.op("Add", x, y))


def _activate(g: Graph, activation: Activation, x: str) -> str:
    match activation:
        case Activation.NONE:
            return x
        case Activation.RELU:
            return g.op("Relu", x)
        case Activation.RELU_SQUARED:
            y = g.op("Relu", x)
            return g.op("Mul", y, y)
        case Activation.TANH:
            return g.op("Tanh", x)
        case Activation.SIGMOID:
            return g.op("Sigmoid", x)
        case Activation.SWISH:
            return g.op("Mul", x, g.op("Sigmoid", x))
        case Activation.SELU:
            return g.op("Selu", x, alpha=1.67326324, gamma=1.05070098)
        case Activation.MISH:
            return _mish(g, x)


def _mish(g: Graph, x: str) -> str:
    """x tanh(log(1 + e^x)) = x t / (t + 2) with t = e^x (e^x + 2).

    Seven element-wise passes that are all vectorised; onnxruntime runs the operator Mish with a scalar
    softplus, 15 times slower. Above 20 the factor is 1 in float32 and e^2x would overflow.
    """
    power = g.op("Exp", g.op("Min", x, g.scalar(20.0)))
    t = g.op("Mul", power, g.op("Add", power, g.scalar(2.0)))
    return g.op("Mul", x, g.op("Div", t, g.op("Add", t, g.scalar(2.0))))


def _tokens_of(g: Graph, planes: str, channels: int) -> str:
    """[n, C, 8, 8] -> [n*64, C]."""
    return g.reshape(g.transpose(planes, 0, 2, 3, 1), -1, channels)

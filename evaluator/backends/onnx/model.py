# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts a NetworkSpec into an ONNX graph of standard operators.

Constants are folded into weights: the attention scale into q, the residual factor alpha into the last matrix
of a sublayer, the position part of a PE_MAP embedding into one bias per square. Tokens are [n*64, C] between
layers, because onnxruntime runs a 2-D Gemm with its bias (and a relu) in one pass. onnxruntime's fused
operators gain nothing on the CPU: MultiHeadAttention and FusedMatMul are even, and SkipLayerNormalization is
six times slower than an addition and a norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from evaluator.backends.onnx.graph import Graph
from evaluator.backends.onnx.products import ObservedProducts, Products, RoundedProducts, linear
from evaluator.backends.onnx.quantisation import LARGEST_WEIGHT, Rounding
from evaluator.network import spec
from evaluator.network.policy_tables import (
    CONVOLUTION_PLANES,
    attention_map,
    convolution_map,
    position_encoding,
    source_of_policy,
)
from evaluator.network.schema import InputEmbedding
from protocol.batch import PLANES, POLICY_SIZE


def build_model(
    network: spec.NetworkSpec,
    *,
    packed: bool,
    roundings: Mapping[str, Rounding] | None = None,
    largest_weight: int = LARGEST_WEIGHT,
    half: bool = False,
) -> onnx.ModelProto:
    """Return the network as an ONNX model with a dynamic batch n.

    Input: `planes` float32 [n, 112, 8, 8]; or, if packed, `bits` uint8 [n, 112, 64] of zeros and ones and
    `values` float32 [n, 112, 1] to multiply them with. Outputs: `policy` [n, 1858] raw logits; `wdl` [n, 3]
    probabilities or `value` [n, 1]; `moves_left` [n, 1] plies if the network has that head. roundings: of
    products in 8 bits, by name; the model then needs onnxruntime. largest_weight: of these products.
    half: compute in fp16; inputs and outputs keep their types.
    """
    return _model(Graph(half=half), network, packed, RoundedProducts(roundings or {}, largest_weight))


def outputs_of(network: spec.NetworkSpec) -> list[str]:
    """Return the names of the model's outputs: policy, value, and moves left if the network has them."""
    moves_left = [] if network.moves_left is None else ["moves_left"]
    return ["policy", "wdl" if network.value.wdl else "value", *moves_left]


def with_batch(model: onnx.ModelProto, size: int) -> bytes:
    """Return a model of `build_model` in serialised form, with the batch n fixed to a size. Changes the model
    instead of a copy, to save memory."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = size
    return model.SerializeToString()


def build_observed_model(network: spec.NetworkSpec) -> tuple[onnx.ModelProto, ObservedProducts]:
    """Return the packed float32 model with additional outputs for the input ranges of roundable products."""
    products = ObservedProducts()
    return _model(Graph(), network, True, products), products


def _model(g: Graph, network: spec.NetworkSpec, packed: bool, products: Products) -> onnx.ModelProto:
    planes = _input(g, packed)
    match network.body:
        case spec.ResidualTower() as tower:
            x = _tower(g, tower, g.reshape(planes, 0, PLANES, 8, 8))
            tokens = False
        case spec.AttentionBody() as body:
            x = _attention_body(g, body, planes, products)
            tokens = True
    g.output(_policy(g, network.policy, x, tokens, products), "policy", ["n", POLICY_SIZE])
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
    return g.op("Mul", g.number(bits), g.number(values) if g.half else values)


# --- bodies -------------------------------------------------------------------------------------------------


def _tower(g: Graph, tower: spec.ResidualTower, planes: str) -> str:
    """[n, 112, 8, 8] -> [n, C, 8, 8]."""
    x = _convolution(g, tower.input, planes)
    for block in tower.blocks:
        y = _convolution(g, block.conv2, _convolution(g, block.conv1, x))
        if block.se is not None:
            y = _squeeze_excitation(g, block.se, y)
        x = _activate(g, block.activation, g.op("Add", y, x))
    return x


def _squeeze_excitation(g: Graph, unit: spec.SEUnit, y: str) -> str:
    pooled = g.reshape(g.op("GlobalAveragePool", y), 0, -1)
    z = g.reshape(_dense(g, unit.excite, _dense(g, unit.squeeze, pooled)), 0, -1, 1, 1)
    channels = len(unit.excite.biases) // 2
    scale = g.op("Sigmoid", g.slice(z, 1, 0, channels))
    return g.op("Add", g.op("Mul", scale, y), g.slice(z, 1, channels, 2 * channels))


def _attention_body(g: Graph, body: spec.AttentionBody, planes: str, products: Products) -> str:
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
        x = linear(g, tokens, weights, square_bias[0])
    else:
        x = g.reshape(linear(g, tokens, weights, None), -1, 64, width)
        x = g.reshape(g.op("Add", x, g.constant(square_bias)), -1, width)
    x = _activate(g, body.embedding.activation, x)
    if body.tail is not None:
        x = _norm(g, body.tail.norm1, x)
    if body.gating is not None:
        x = g.reshape(x, -1, 64, width)
        x = g.op("Add", g.op("Mul", x, g.constant(body.gating.multiply)), g.constant(body.gating.add))
        x = g.reshape(x, -1, width)
    if body.tail is not None:
        tail = _feed_forward(g, body.tail.ffn, x, body.tail.alpha, products, "embedding")
        x = _add_norm(g, body.tail.norm2, x, tail)
    for number, layer in enumerate(body.encoders):
        x = _encoder(g, layer, x, products, f"encoders.{number}")
    return x


def _encoder(g: Graph, layer: spec.EncoderLayer, x: str, products: Products, name: str) -> str:
    """[n*64, E] -> [n*64, E]. name: of the layer; prefix of its products' names."""
    x = _add_norm(g, layer.norm1, x, _attention(g, layer.attention, x, layer.alpha, products, name))
    return _add_norm(g, layer.norm2, x, _feed_forward(g, layer.ffn, x, layer.alpha, products, name))


def _attention(g: Graph, layer: spec.Attention, x: str, alpha: float, products: Products, name: str) -> str:
    """[n*64, E] -> [n*64, E], multiplied by alpha."""
    model, heads = len(layer.q.biases), layer.heads
    depth = model // heads
    scale = np.float32(depth**-0.5)

    # Three products: splitting the result of a combined one costs more than it saves.
    def split(weights: spec.FloatArray, biases: spec.FloatArray, *order: int) -> str:
        y = products.linear(g, x, (weights, biases), f"{name}.qkv")
        return g.transpose(g.reshape(y, -1, 64, heads, depth), *order)

    q = split(layer.q.weights * scale, layer.q.biases * scale, 0, 2, 1, 3)  # [n, heads, 64, depth]
    k = split(layer.k.weights, layer.k.biases, 0, 2, 3, 1)  # [n, heads, depth, 64]
    values = _scaled(layer.v, products.multipliers(f"{name}.output"))  # the output's inputs are means of v
    v = split(values.weights, values.biases, 0, 2, 1, 3)
    logits = g.op("MatMul", q, k)
    if layer.smolgen is not None:
        logits = g.op("Add", logits, _smolgen(g, layer.smolgen, heads, x, products, name))
    mixed = g.op("MatMul", g.op("Softmax", logits, axis=-1), v)
    mixed = g.reshape(g.transpose(mixed, 0, 2, 1, 3), -1, model)
    weights, biases = layer.output.weights * np.float32(alpha), layer.output.biases * np.float32(alpha)
    return products.linear(g, mixed, (weights, biases), f"{name}.output", multiplied=True)


def _smolgen(g: Graph, layer: spec.Smolgen, heads: int, x: str, products: Products, name: str) -> str:
    """[n*64, E] -> [n, heads, 64, 64]."""
    hidden = len(layer.compress)
    compressed = g.reshape(linear(g, x, layer.compress, None), -1, 64 * hidden)
    dense1 = layer.dense1
    y = products.linear(g, compressed, (dense1.weights, dense1.biases), f"{name}.smolgen_in")
    y = _norm(g, layer.norm1, _activate(g, dense1.activation, y))
    gen = layer.position_weights.shape[1]
    norm2, folded = layer.norm2, products.multipliers(f"{name}.smolgen_out")
    if folded is not None:
        each = np.tile(folded, heads)
        norm2 = replace(norm2, gammas=norm2.gammas * each, betas=norm2.betas * each)
    y = g.reshape(_norm(g, norm2, _dense(g, layer.dense2, y)), -1, gen)
    y = products.linear(g, y, (layer.position_weights, None), f"{name}.smolgen_out", multiplied=True)
    return g.reshape(y, -1, heads, 64, 64)


# --- heads --------------------------------------------------------------------------------------------------


def _policy(g: Graph, head: spec.PolicyHead, x: str, tokens: bool, products: Products) -> str:
    """The body's output -> [n, 1858]."""
    match head:
        case spec.ClassicalPolicyHead():
            return _dense(g, head.dense, g.reshape(_convolution(g, head.conv, x), 0, -1))
        case spec.ConvolutionPolicyHead():
            used = spec.ConvBlock(
                head.conv2.weights[:CONVOLUTION_PLANES], head.conv2.biases[:CONVOLUTION_PLANES]
            )
            y = g.reshape(_convolution(g, used, _convolution(g, head.conv1, x)), 0, -1)
            return _gather(g, y, source_of_policy(convolution_map()))
        case spec.AttentionPolicyHead():
            y = x if tokens else _tokens_of(g, x, head.embedding.weights.shape[1])
            return _attention_policy(g, head, y, products)


def _attention_policy(g: Graph, head: spec.AttentionPolicyHead, x: str, products: Products) -> str:
    y = _dense(g, head.embedding, x)
    for number, layer in enumerate(head.encoders):
        y = _encoder(g, layer, y, products, f"policy.{number}")
    depth = len(head.q.biases)
    scale = np.float32(depth**-0.5)
    q = g.reshape(linear(g, y, head.q.weights * scale, head.q.biases * scale), -1, 64, depth)
    k = g.reshape(linear(g, y, head.k.weights, head.k.biases), -1, 64, depth)
    moves = g.op("MatMul", q, g.transpose(k, 0, 2, 1))
    promotion = head.promotion[:3] + head.promotion[3:]
    offsets = g.op("MatMul", g.slice(k, 1, 56, 64), g.constant(promotion.T))  # [n, to-file, piece]
    seventh = g.slice(g.slice(moves, 1, 48, 56), 2, 56, 64)
    promotions = g.op("Add", g.reshape(seventh, 0, 8, 8, 1), g.reshape(offsets, 0, 1, 8, 3))
    entries = g.op("Concat", g.reshape(moves, 0, 4096), g.reshape(promotions, 0, 192), axis=1)
    return _gather(g, entries, source_of_policy(attention_map()))


def _flat_head(g: Graph, head: spec.ValueHead | spec.MovesLeftHead, x: str) -> str:
    """Embedding, flatten, two dense layers -> [n, outputs]."""
    channels = len(head.embedding.biases)
    if isinstance(head.embedding, spec.ConvBlock):
        y = _convolution(g, head.embedding, x)
    else:
        y = _dense(g, head.embedding, x)
    return _dense(g, head.dense2, _dense(g, head.dense1, g.reshape(y, -1, 64 * channels)))


def _gather(g: Graph, entries: str, source: NDArray[np.int32]) -> str:
    return g.op("Gather", entries, g.constant(source.astype(np.int64)), axis=1)


# --- layers -------------------------------------------------------------------------------------------------


def _dense(g: Graph, layer: spec.Dense, x: str) -> str:
    return _activate(g, layer.activation, linear(g, x, layer.weights, layer.biases))


def _feed_forward(
    g: Graph, layer: spec.FeedForward, x: str, alpha: float, products: Products, name: str
) -> str:
    """[n*64, E] -> [n*64, E], multiplied by alpha."""
    first, second, activation = layer.dense1, layer.dense2, layer.dense1.activation
    folded = _before(activation, products.multipliers(f"{name}.ffn2"))
    first = _scaled(first, folded)
    hidden = products.linear(g, x, (first.weights, first.biases), f"{name}.ffn1")
    hidden = _activate(g, activation, hidden)
    weights, biases = second.weights * np.float32(alpha), second.biases * np.float32(alpha)
    return products.linear(g, hidden, (weights, biases), f"{name}.ffn2", multiplied=folded is not None)


def _before(activation: spec.Activation, multipliers: spec.FloatArray | None) -> spec.FloatArray | None:
    """Return the factors of an activation's input that scale its output by the multipliers (all above 0);
    None if there are none."""
    match activation:
        case spec.Activation.NONE | spec.Activation.RELU:
            return multipliers
        case spec.Activation.RELU_SQUARED if multipliers is not None:
            return np.sqrt(multipliers)
        case _:
            return None


def _scaled(layer: spec.Dense, factors: spec.FloatArray | None) -> spec.Dense:
    """Return the layer with its outputs, before the activation, multiplied by factors."""
    if factors is None:
        return layer
    return replace(layer, weights=layer.weights * factors[:, None], biases=layer.biases * factors)


def _convolution(g: Graph, layer: spec.ConvBlock, x: str) -> str:
    size = layer.weights.shape[2]
    edge = [size // 2] * 4
    y = g.op(
        "Conv", x, g.constant(layer.weights), g.constant(layer.biases), kernel_shape=[size, size], pads=edge
    )
    return _activate(g, layer.activation, y)


def _norm(g: Graph, layer: spec.LayerNorm, x: str) -> str:
    return g.op(
        "LayerNormalization",
        x,
        g.constant(layer.gammas),
        g.constant(layer.betas),
        epsilon=layer.epsilon,
        axis=-1,
    )


def _add_norm(g: Graph, layer: spec.LayerNorm, x: str, y: str) -> str:
    """norm(x + y)."""
    return _norm(g, layer, g.op("Add", x, y))


def _activate(g: Graph, activation: spec.Activation, x: str) -> str:
    match activation:
        case spec.Activation.NONE:
            return x
        case spec.Activation.RELU:
            return g.op("Relu", x)
        case spec.Activation.RELU_SQUARED:
            y = g.op("Relu", x)
            return g.op("Mul", y, y)
        case spec.Activation.TANH:
            return g.op("Tanh", x)
        case spec.Activation.SIGMOID:
            return g.op("Sigmoid", x)
        case spec.Activation.SWISH:
            return g.op("Mul", x, g.op("Sigmoid", x))
        case spec.Activation.SELU:
            return g.op("Selu", x, alpha=1.67326324, gamma=1.05070098)
        case spec.Activation.MISH:
            return _mish(g, x)


def _mish(g: Graph, x: str) -> str:
    """x tanh(log(1 + e^x)) = x t / (t + 2) with t = e^x (e^x + 2).

    Seven element-wise passes, all vectorised. onnxruntime's operator Mish uses a scalar softplus, 15 times
    slower. Above 20, in fp16 above 5, the factor rounds to 1 and e^2x would soon overflow.
    """
    power = g.op("Exp", g.op("Min", x, g.scalar(5.0 if g.half else 20.0)))
    t = g.op("Mul", power, g.op("Add", power, g.scalar(2.0)))
    return g.op("Mul", x, g.op("Div", t, g.op("Add", t, g.scalar(2.0))))


def _tokens_of(g: Graph, planes: str, channels: int) -> str:
    """[n, C, 8, 8] -> [n*64, C]."""
    return g.reshape(g.transpose(planes, 0, 2, 3, 1), -1, channels)

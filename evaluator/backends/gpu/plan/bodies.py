# SPDX-License-Identifier: GPL-3.0-or-later
"""The launches for a network's body: the forward pass up to the heads, layer by layer.

Structured like `evaluator.backends.reference.backend`, function by function; comments note what is fused.
Each function appends to the program `b`; `layers` provides the packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.hopper import AttentionTile, attention_tile
from evaluator.backends.gpu.plan.layers import PackedLayers
from evaluator.backends.gpu.plan.persistent import EncoderLayers, Encoders, SmolgenLayers, Tail
from evaluator.backends.gpu.plan.persistent_form import PersistentForm
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.products.left_norms import NormUse, is_left
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.program import Matrix, PlanError
from evaluator.backends.gpu.plan.steps import attention as scaled_dot_product
from evaluator.backends.gpu.plan.steps import expand, projected_attention, squeeze_excite
from evaluator.backends.gpu.plan.weights import of_planes
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.schema import InputEmbedding
from evaluator.network.spec import (
    Attention,
    AttentionBody,
    EncoderLayer,
    LayerNorm,
    ResidualTower,
    Smolgen,
)


def residual_tower(b: ProgramBuilder, layers: PackedLayers, tower: ResidualTower) -> Matrix:
    """Append a residual tower. Its boards are squares by channels; a convolution is a product with
    neighbours."""
    first = replace(tower.input, weights=of_planes(tower.input.weights))
    x = linear(b, layers.convolution("input", first), expand(b, appended=None, pieces=False), "x0")
    for index, block in enumerate(tower.blocks):
        name = f"block{index}"
        out = f"x{(index + 1) % 2}"
        y = linear(b, layers.convolution(f"{name}.conv1", block.conv1), x, "y1")
        conv2 = layers.convolution(f"{name}.conv2", block.conv2)
        if block.se is not None:
            y = linear(b, conv2, y, "y2")
            x = squeeze_excite(b, block.se, y, x, block.activation, out, f"{name}.se")
        else:
            x = linear(b, replace(conv2, activation=block.activation), y, out, residual=x)
    return x


def attention_body(
    b: ProgramBuilder, layers: PackedLayers, body: AttentionBody, blocks: int, form: PersistentForm
) -> Matrix:
    """Append an attention body. blocks: of the single launch for all encoders, in that form; 0 for many
    launches."""
    after = After(norm=None if body.tail is None else body.tail.norm1, gating=body.gating)
    x = linear(b, *embedding(b, layers, body), "x", after=after)
    if blocks:
        return persistent_encoders(b, layers, body, x, blocks, form)
    if body.tail is not None:
        dense1, dense2 = layers.tail(body.tail)
        hidden = linear(b, dense1, x, "hidden")
        first = Following("encoder0", body.encoders[0]) if body.encoders else None
        x = before(b, layers, first, dense2, hidden, "x", x, body.tail.norm2)
    for index, layer in enumerate(body.encoders):
        rest = body.encoders[index + 1 :]
        following = Following(f"encoder{index + 1}", rest[0]) if rest else None
        x = encoder(b, layers, f"encoder{index}", layer, x, "x", following)
    return x


def embedding(b: ProgramBuilder, layers: PackedLayers, body: AttentionBody) -> tuple[Linear, Matrix]:
    """Return the embedding layer and its input."""
    layer = body.embedding
    if body.tower is not None:
        return layers.dense("embedding", layer), residual_tower(b, layers, body.tower)
    of_board = replace(layer, weights=of_planes(layer.weights))
    match body.position:
        case InputEmbedding.PE_MAP:
            return layers.embedding_of_planes(layer), expand(b, appended=None, pieces=False)
        case InputEmbedding.PE_DENSE:
            assert body.preprocess is not None
            pieces = expand(b, appended=None, pieces=True)
            position = linear(b, layers.dense("preprocess", body.preprocess), pieces, "position")
            return layers.dense("embedding", of_board), expand(b, appended=position, pieces=False)
        case InputEmbedding.NONE:
            return layers.dense("embedding", of_board), expand(b, appended=None, pieces=False)


@dataclass(frozen=True, slots=True)
class Following:
    """The encoder, by name, that is the only reader of a matrix."""

    name: str
    layer: EncoderLayer


def encoder(
    b: ProgramBuilder,
    layers: PackedLayers,
    name: str,
    layer: EncoderLayer,
    x: Matrix,
    out: str,
    following: Following | None = None,
) -> Matrix:
    """Append an encoder. alpha is part of the weights of each sublayer's last product, whose epilogue adds
    the skip. out: buffer of the result, which may be x's. following: the encoder that reads it, if it is the
    only reader."""
    ffn = layer.ffn
    mixed = attention(b, layers, name, layer.attention, x)
    output = layers.attention_output(name, layer.attention, layer.alpha)
    readers = partial(readers_in_feed_forward, b, layers, name, layer, x)
    x = normed(b, output, mixed, out, x, layer.norm1, readers, ffn.dense1.inputs)
    if x.norm is None:
        dense1 = layers.dense(f"{name}.ffn1", ffn.dense1)
    else:
        dense1 = layers.dense_of_norm(f"{name}.ffn1", ffn.dense1, x.norm.norm)
    hidden = linear(b, dense1, x, "hidden", rounded=ffn.dense2.inputs, keep=False)
    dense2 = layers.dense(f"{name}.ffn2", ffn.dense2, scale=layer.alpha)
    return before(b, layers, following, dense2, hidden, out, x, layer.norm2)


def before(
    b: ProgramBuilder,
    layers: PackedLayers,
    following: Following | None,
    layer: Linear,
    a: Matrix,
    out: str,
    residual: Matrix,
    norm: LayerNorm,
) -> Matrix:
    """Append the product and norm before an encoder, if one is given."""
    if following is None:
        return linear(b, layer, a, out, residual=residual, after=After(norm))
    readers = partial(readers_in_attention, b, layers, following.name, following.layer, residual)
    return normed(b, layer, a, out, residual, norm, readers, following.layer.attention.q.inputs)


def normed(
    b: ProgramBuilder,
    layer: Linear,
    a: Matrix,
    out: str,
    residual: Matrix,
    norm: LayerNorm,
    readers: Callable[[], Sequence[NormUse]],
    rounded: E4m3Inputs | None,
) -> Matrix:
    """Append norm(a @ weights + biases + residual), leaving the norm to the readers if possible. rounded:
    inputs of the layers that read the result."""
    left = rounded is None and is_left(b, NormUse(layer, a, norm), readers)
    return linear(b, layer, a, out, residual=residual, after=After(norm), rounded=rounded, leave_norm=left)


def readers_in_feed_forward(
    b: ProgramBuilder, layers: PackedLayers, name: str, layer: EncoderLayer, x: Matrix
) -> list[NormUse]:
    """Return the products that read the first norm of an encoder, whose matrix has x's shape."""
    dense1 = layers.dense(f"{name}.ffn1", layer.ffn.dense1)
    dense2 = layers.dense(f"{name}.ffn2", layer.ffn.dense2, scale=layer.alpha)
    hidden = b.matrix("hidden", x.rows, dense1.width)
    return [NormUse(dense1, x), NormUse(dense2, hidden, layer.norm2)]


def readers_in_attention(
    b: ProgramBuilder, layers: PackedLayers, name: str, layer: EncoderLayer, x: Matrix
) -> list[NormUse]:
    """Return the products that read an encoder's input, of x's shape. Only for chains of launches."""
    own, generator = layer.attention, layer.attention.smolgen
    output = layers.attention_output(name, own, layer.alpha)
    mixed = b.matrix("attention", x.rows, own.heads * layers.depth(name, own))
    readers = [NormUse(output, mixed, layer.norm1)]
    if generator is not None and b.shares_products:
        return [NormUse(layers.qkv_compress(name, own, generator), x), *readers]
    if generator is not None:
        readers.append(NormUse(layers.compress(f"{name}.smolgen", generator), x))
    return [NormUse(layers.qkv(name, own), x), *readers]


def attention(b: ProgramBuilder, layers: PackedLayers, name: str, layer: Attention, x: Matrix) -> Matrix:
    """Append the heads' mixed values. q, k and v are one product; smolgen runs concurrently."""
    heads, depth = layer.heads, layers.depth(name, layer)
    generator, within = layer.smolgen, f"{name}.smolgen"
    tile = attention_tile(b.positions, depth, b.target, b.precision) if b.fused else None
    if tile is not None:
        return _attention_in_one(b, layers, name, layer, x, tile)
    bias: Matrix | None = None
    norm = x.left_norm
    if generator is None:
        qkv = linear(b, layers.qkv(name, layer, norm), x, "qkv")
    elif b.shares_products and layer.q.inputs is None:
        # Smolgen's compression is part of the product for q, k and v: one kernel less in the chain.
        qkv = linear(b, layers.qkv_compress(name, layer, generator, norm), x, "qkv_compress")
        at = 3 * heads * depth
        compressed = Matrix(qkv.buffer, b.positions, 64 * (qkv.width - at), qkv.stride, qkv.width - at, at)
        bias = smolgen(b, layers, within, generator, heads, compressed)
    else:
        b.fork()
        bias = smolgen(b, layers, within, generator, heads, compress(b, layers, within, generator, x))
        b.main()
        qkv = linear(b, layers.qkv(name, layer, norm), x, "qkv")
        b.join()
    return scaled_dot_product(b, qkv, heads, depth, bias, f"{name}.attention", layer.output.inputs)


def _attention_in_one(
    b: ProgramBuilder, layers: PackedLayers, name: str, layer: Attention, x: Matrix, tile: AttentionTile
) -> Matrix:
    """Append `attention` with q, k and v computed in the same kernel."""
    heads, generator, within = layer.heads, layer.smolgen, f"{name}.smolgen"
    bias: Matrix | None = None
    if generator is not None:
        bias = smolgen(b, layers, within, generator, heads, compress(b, layers, within, generator, x))
    qkv, rounded = layers.qkv(name, layer), layer.output.inputs
    return projected_attention(b, qkv, x, heads, bias, f"{name}.attention", tile, rounded)


def compress(b: ProgramBuilder, layers: PackedLayers, name: str, layer: Smolgen, x: Matrix) -> Matrix:
    """Append smolgen's compression of each square, one row per board."""
    return linear(b, layers.compress(name, layer, x.left_norm), x, "compressed").with_rows(b.positions)


def smolgen(
    b: ProgramBuilder, layers: PackedLayers, name: str, layer: Smolgen, heads: int, compressed: Matrix
) -> Matrix:
    """[positions * heads, 4096], from [positions, 64 * hidden]."""
    dense1, dense2, norm2, generate = layers.smolgen_layers(name, layer, heads)
    own, width = len(layer.dense2.biases) // heads, dense2.width // heads
    hidden = linear(b, dense1, compressed, "smolgen1", after=After(layer.norm1))
    after = After(norm2, parts=(width, own) if width != own else (0, 0))
    generated = linear(b, dense2, hidden, "smolgen2", after=after)
    return linear(b, generate, generated.with_rows(b.positions * heads), "smolgen_logits")


# -- in one launch -------------------------------------------------------------------------------------------


def persistent_encoders(
    b: ProgramBuilder,
    layers: PackedLayers,
    body: AttentionBody,
    x: Matrix,
    blocks: int,
    form: PersistentForm,
) -> Matrix:
    """Append all encoders, and the layers after the embedding, in one launch of `blocks` blocks. Raises
    PlanError if kernels/persistent.hip does not support the network."""
    packed = []
    forms = set()
    before = None if body.tail is None else body.tail.norm2
    for index, layer in enumerate(body.encoders):
        name, own = f"encoder{index}", layer.attention
        forms.add((own.heads, layers.depth(name, own), own.smolgen is None))
        packed.append(
            EncoderLayers(
                smolgen=_persistent_smolgen(layers, f"{name}.smolgen", own),
                before=before,
                qkv=layers.qkv(name, own, before),
                output=layers.attention_output(name, own, layer.alpha),
                norm1=layer.norm1,
                ffn1=layers.dense_of_norm(f"{name}.ffn1", layer.ffn.dense1, layer.norm1),
                ffn2=layers.dense(f"{name}.ffn2", layer.ffn.dense2, scale=layer.alpha),
            )
        )
        before = layer.norm2
    if len(forms) != 1 or before is None:
        raise PlanError("the persistent kernel wants encoders of one form")
    ((heads, depth, _),) = forms
    tail = None if body.tail is None else Tail(*layers.tail(body.tail))
    return Encoders(b, blocks, heads, depth, form).launch(packed, before, x, tail)


def _persistent_smolgen(layers: PackedLayers, name: str, attention: Attention) -> SmolgenLayers | None:
    generator = attention.smolgen
    if generator is None:
        return None
    dense1, dense2, norm2, generate = layers.smolgen_layers(name, generator, attention.heads)
    if dense2.width != len(generator.norm2.gammas):
        raise PlanError("the persistent kernel wants smolgen's layers without padding")
    return SmolgenLayers(layers.compress(name, generator), dense1, generator.norm1, dense2, norm2, generate)

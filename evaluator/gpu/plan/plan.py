"""From a NetworkSpec to the launches that evaluate it: the forward pass, layer by layer.

Reads like `evaluator.backends.reference`, function by function; what is fused is said where it happens.
Packed weights are kept between batch sizes in a Plan.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.builder import Builder
from evaluator.gpu.plan.layers import PackedLayers
from evaluator.gpu.plan.persistent import MAX_POSITIONS, Encoders, Layers, SmolgenLayers, Tail
from evaluator.gpu.plan.program import Launch, Matrix, Program
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.quantised import pack as pack_codes
from evaluator.gpu.plan.steps import After, Linear, PlanError
from evaluator.gpu.plan.tiles import Chooser
from evaluator.network.policy_tables import (
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
    DenseEmbeddingTail,
    EncoderLayer,
    FloatArray,
    MovesLeftHead,
    NetworkSpec,
    ResidualTower,
    Smolgen,
    ValueHead,
)

log = logging.getLogger(__name__)

PLANES = 112


@dataclass(slots=True)
class Plan:
    """How one network runs on one target. weights: every array for the device, filled by `program`.

    packed: the format that the network's weights were rounded to (packed.rounded_network), where they were.
    blocks: how many can wait for each other in one launch, 0 for none. fused: whether attention and the
    product before it may be one kernel at some batch sizes, by which a position's bits then differ.
    """

    network: NetworkSpec
    target: Target
    precision: Precision
    choose: Chooser
    packed: WeightFormat | None = None
    blocks: int = 0
    fused: bool = True
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    _linears: dict[str, Linear] = field(default_factory=dict)

    def program(self, positions: int) -> Program:
        """The launches for a batch. Raises PlanError for what the kernels cannot run."""
        return self._program(positions, persistent=False)

    def persistent_program(self, positions: int) -> Program | None:
        """The same with all encoders in one launch, for a few positions; None where that cannot be done."""
        if not self.blocks or positions > MAX_POSITIONS or self.packed is not None:
            return None
        try:
            program = self._program(positions, persistent=True)
        except PlanError as error:
            log.debug("no persistent kernel for %d positions: %s", positions, error)
            return None
        together = any(isinstance(step, Launch) and step.cooperative for step in program.steps)
        return program if together else None

    def _program(self, positions: int, *, persistent: bool) -> Program:
        builder = Builder(positions, self.target, self.precision, self.choose, self.weights, fused=self.fused)
        _Walk(self, builder, persistent=persistent).network()
        return builder.program

    def linear(self, name: str, make: Any) -> Linear:
        """A packed layer, made when it is first asked for."""
        if name not in self._linears:
            try:
                self._linears[name] = self._packed(make())
            except pack.WeightError as error:
                raise PlanError(f"{name}: {error}") from error
        return self._linears[name]

    def _packed(self, linear: Linear) -> Linear:
        """With its codes, if it is one of the encoders' and its weights are codes as they lie here."""
        if self.packed is None or not linear.name.startswith(("encoder", "smolgen")):
            return linear
        unit = self.target.matrix_unit(self.precision)
        return replace(linear, packed=pack_codes(linear.weights, self.packed, unit))


class _Walk(PackedLayers):
    def __init__(self, plan: Plan, builder: Builder, *, persistent: bool) -> None:
        super().__init__(plan.linear, plan.precision)
        self.plan = plan
        self.persistent = persistent
        self.b = builder

    # -- the network -----------------------------------------------------------------------------------

    def network(self) -> None:
        network = self.plan.network
        match network.body:
            case ResidualTower() as tower:
                x = self.residual_tower(tower)
            case AttentionBody() as body:
                x = self.attention_body(body)
        self.b.fork()
        moves_left = network.moves_left
        value, moves = self.heads_hidden(network.value, moves_left, x)
        self.b.main()
        self.policy(network.policy, x)
        self.b.join()
        self.b.outputs(
            value,
            _last(network.value.dense2),
            moves,
            None if moves_left is None else _last(moves_left.dense2),
        )

    def residual_tower(self, tower: ResidualTower) -> Matrix:
        """Squares by channels throughout: a convolution is a product that picks up the neighbours."""
        b = self.b
        x = b.linear(self.convolution("input", tower.input), b.expand(appended=None, pieces=False), "x0")
        for index, block in enumerate(tower.blocks):
            name = f"block{index}"
            out = f"x{(index + 1) % 2}"
            y = b.linear(self.convolution(f"{name}.conv1", block.conv1), x, "y1")
            conv2 = self.convolution(f"{name}.conv2", block.conv2)
            if block.se is not None:
                y = b.linear(conv2, y, "y2")
                x = b.squeeze_excite(block.se, y, x, block.activation, out, f"{name}.se")
            else:
                end = Linear(conv2.name, conv2.width, conv2.weights, conv2.biases, block.activation, True)
                x = b.linear(end, y, out, residual=x)
        return x

    def attention_body(self, body: AttentionBody) -> Matrix:
        b = self.b
        after = After(norm=None if body.tail is None else body.tail.norm1, gating=body.gating)
        x = b.linear(*self.embedding(body), "x", after=after)
        if self.persistent:
            return self.persistent_encoders(body, x)
        if body.tail is not None:
            dense1, dense2 = self.tail(body.tail)
            x = b.linear(dense2, b.linear(dense1, x, "hidden"), "x", residual=x, after=After(body.tail.norm2))
        for index, layer in enumerate(body.encoders):
            x = self.encoder(f"encoder{index}", layer, x)
        return x

    def tail(self, tail: DenseEmbeddingTail) -> tuple[Linear, Linear]:
        dense2 = self.dense("tail.dense2", tail.ffn.dense2, scale=tail.alpha)
        return self.dense("tail.dense1", tail.ffn.dense1), dense2

    def persistent_encoders(self, body: AttentionBody, x: Matrix) -> Matrix:
        """All of them in one launch."""
        layers = []
        depths = set()
        before = None if body.tail is None else body.tail.norm2
        for index, layer in enumerate(body.encoders):
            name, attention = f"encoder{index}", layer.attention
            depths.add((attention.heads, self.depth(name, attention), attention.smolgen is None))
            smolgen: SmolgenLayers | None = None
            if attention.smolgen is not None:
                generator, within = attention.smolgen, f"{name}.smolgen"
                dense1, dense2, norm2, generate = self.smolgen_layers(within, generator, attention.heads)
                if dense2.width != len(generator.norm2.gammas):
                    raise PlanError("the persistent kernel wants smolgen's layers without padding")
                compress = self.compress(within, generator)
                smolgen = SmolgenLayers(compress, dense1, generator.norm1, dense2, norm2, generate)
            layers.append(
                Layers(
                    before,
                    self.qkv(name, attention, before),
                    smolgen,
                    self.attention_output(name, attention, layer.alpha),
                    layer.norm1,
                    self.dense_of_norm(f"{name}.ffn1", layer.ffn.dense1, layer.norm1),
                    self.dense(f"{name}.ffn2", layer.ffn.dense2, scale=layer.alpha),
                )
            )
            before = layer.norm2
        if len(depths) != 1 or before is None:
            raise PlanError("the persistent kernel wants encoders of one form")
        ((heads, depth, _),) = depths
        tail = None if body.tail is None else Tail(*self.tail(body.tail))
        return Encoders(self.b, self.plan.blocks, heads, depth).launch(layers, before, x, tail)

    def embedding(self, body: AttentionBody) -> tuple[Linear, Matrix]:
        """The embedding layer and what it takes. PE_MAP's constant part becomes a bias for each square."""
        b, layer = self.b, body.embedding
        if body.tower is not None:
            return self.dense("embedding", layer), self.residual_tower(body.tower)
        match body.position:
            case InputEmbedding.PE_MAP:

                def make() -> Linear:
                    position = position_encoding() @ layer.weights[:, PLANES:].T + layer.biases
                    biases = pack.padded(position.astype(np.float32), 1, self.precision.chunk)
                    weights = pack.matrix(layer.weights[:, :PLANES], self.precision)
                    return Linear("embedding", len(layer.biases), weights, biases, layer.activation)

                return self.linear("embedding", make), b.expand(appended=None, pieces=False)
            case InputEmbedding.PE_DENSE:
                assert body.preprocess is not None
                pieces = b.expand(appended=None, pieces=True)
                position = b.linear(self.dense("preprocess", body.preprocess), pieces, "position")
                return self.dense("embedding", layer), b.expand(appended=position, pieces=False)
            case InputEmbedding.NONE:
                return self.dense("embedding", layer), b.expand(appended=None, pieces=False)

    def encoder(self, name: str, layer: EncoderLayer, x: Matrix) -> Matrix:
        """alpha goes into the weights of each sublayer's last product, whose end adds the skip."""
        b = self.b
        mixed, output = self.attention(name, layer.attention, layer.alpha, x)
        x = b.linear(output, mixed, "x", residual=x, after=After(layer.norm1))
        hidden = b.linear(self.dense(f"{name}.ffn1", layer.ffn.dense1), x, "hidden")
        dense2 = self.dense(f"{name}.ffn2", layer.ffn.dense2, scale=layer.alpha)
        return b.linear(dense2, hidden, "x", residual=x, after=After(layer.norm2))

    def attention(self, name: str, layer: Attention, alpha: float, x: Matrix) -> tuple[Matrix, Linear]:
        """The mixed values and the output layer. q, k and v are one product; smolgen runs beside it."""
        b, heads, depth = self.b, layer.heads, self.depth(name, layer)
        output = self.attention_output(name, layer, alpha)
        generator, within = layer.smolgen, f"{name}.smolgen"
        bias: Matrix | None = None
        tile = b.attention_tile(depth)
        if tile is not None:
            # q, k and v are made where they are used.
            if generator is not None:
                bias = self.smolgen(within, generator, heads, self.compressed(within, generator, x))
            products = self.qkv(name, layer)
            return b.projected_attention(products, x, heads, bias, f"{name}.attention", tile), output
        if generator is None:
            qkv = b.linear(self.qkv(name, layer), x, "qkv")
        elif b.shares_products:
            # What smolgen takes of each square is computed with q, k and v: one kernel less in the chain.
            qkv = b.linear(self.qkv_compress(name, layer, generator), x, "qkv_compress")
            at = 3 * heads * depth
            compressed = Matrix(
                qkv.buffer, b.positions, 64 * (qkv.width - at), qkv.stride, qkv.width - at, at
            )
            bias = self.smolgen(within, generator, heads, compressed)
        else:
            b.fork()
            bias = self.smolgen(within, generator, heads, self.compressed(within, generator, x))
            b.main()
            qkv = b.linear(self.qkv(name, layer), x, "qkv")
            b.join()
        return b.attention(qkv, heads, depth, bias, f"{name}.attention"), output

    def compressed(self, name: str, layer: Smolgen, x: Matrix) -> Matrix:
        """What smolgen takes of each square, a row for each board."""
        return self.b.view(self.b.linear(self.compress(name, layer), x, "compressed"), self.b.positions)

    def smolgen(self, name: str, layer: Smolgen, heads: int, compressed: Matrix) -> Matrix:
        """[positions * heads, 4096], from [positions, 64 * hidden]."""
        b = self.b
        dense1, dense2, norm2, generate = self.smolgen_layers(name, layer, heads)
        own, width = len(layer.dense2.biases) // heads, dense2.width // heads
        hidden = b.linear(dense1, compressed, "smolgen1", after=After(layer.norm1))
        after = After(norm2, parts=(width, own) if width != own else (0, 0))
        generated = b.linear(dense2, hidden, "smolgen2", after=after)
        return b.linear(generate, b.view(generated, b.positions * heads), "smolgen_logits")

    # -- heads -----------------------------------------------------------------------------------------

    def policy(self, head: Any, x: Matrix) -> None:
        b = self.b
        match head:
            case ClassicalPolicyHead():
                y = b.linear(self.convolution("policy.conv", head.conv), x, "policy1")
                dense = self.flattened("policy.dense", head.dense, channels_first=True)
                entries = b.linear(dense, b.view(y, b.positions), "policy2")
                b.policy_of_entries(entries, entries.stride, np.arange(entries.width, dtype=np.int32))
            case ConvolutionPolicyHead():
                y = b.linear(self.convolution("policy.conv1", head.conv1), x, "policy1")
                y = b.linear(self.convolution("policy.conv2", head.conv2), y, "policy2")
                plane, square = np.divmod(source_of_policy(convolution_map()), 64)
                b.policy_of_entries(y, 64 * y.stride, (square * y.stride + plane).astype(np.int32))
            case AttentionPolicyHead():
                y = b.linear(self.dense("policy.embedding", head.embedding), x, "policy1")
                for index, layer in enumerate(head.encoders):
                    y = self.policy_encoder(f"policy.encoder{index}", layer, y)
                qk = b.linear(self.policy_products(head), y, "policy2")
                b.policy_of_products(qk, head.promotion, source_of_policy(attention_map()))

    def policy_encoder(self, name: str, layer: EncoderLayer, y: Matrix) -> Matrix:
        """As `encoder`, on the policy's own board."""
        b = self.b
        mixed, output = self.attention(name, layer.attention, layer.alpha, y)
        y = b.linear(output, mixed, "policy1", residual=y, after=After(layer.norm1))
        hidden = b.linear(self.dense(f"{name}.ffn1", layer.ffn.dense1), y, "hidden")
        dense2 = self.dense(f"{name}.ffn2", layer.ffn.dense2, scale=layer.alpha)
        return b.linear(dense2, hidden, "policy1", residual=y, after=After(layer.norm2))

    def heads_hidden(
        self, value: ValueHead, moves: MovesLeftHead | None, x: Matrix
    ) -> tuple[Matrix, Matrix | None]:
        """The hidden layers of the value and moves-left heads, [positions, width]."""
        b = self.b
        if moves is None:
            return self.head_hidden("value", value, x), None
        first, second = value.embedding, moves.embedding
        if (
            b.chained
            or isinstance(first, ConvBlock)
            or isinstance(second, ConvBlock)
            or first.activation is not second.activation
        ):
            return self.head_hidden("value", value, x), self.head_hidden("moves_left", moves, x)
        # For few positions a product that both share is a kernel less.
        width = pack.round_up(len(first.biases), self.precision.chunk)

        y = b.linear(self.side_by_side("heads.embedding", (first, second)), x, "heads1")
        hidden = []
        for name, head, at, end in (("value", value, 0, width), ("moves_left", moves, width, y.width)):
            dense1 = self.flattened(f"{name}.dense1", head.dense1, channels_first=False)
            board = Matrix(y.buffer, b.positions, 64 * (end - at), y.stride, end - at, at)
            hidden.append(b.linear(dense1, board, f"{name}2"))
        return hidden[0], hidden[1]

    def head_hidden(self, name: str, head: ValueHead | MovesLeftHead, x: Matrix) -> Matrix:
        """The hidden layer of a value or moves-left head, [positions, width]."""
        b = self.b
        if isinstance(head.embedding, ConvBlock):
            embedding = self.convolution(f"{name}.embedding", head.embedding)
        else:
            embedding = self.dense(f"{name}.embedding", head.embedding)
        y = b.linear(embedding, x, f"{name}1")
        dense1 = self.flattened(
            f"{name}.dense1", head.dense1, channels_first=isinstance(head.embedding, ConvBlock)
        )
        return b.linear(dense1, b.view(y, b.positions), f"{name}2")


def _last(layer: Dense) -> tuple[FloatArray, FloatArray, Activation]:
    return layer.weights, layer.biases, layer.activation


__all__ = ["Plan", "PlanError"]

# SPDX-License-Identifier: GPL-3.0-or-later
"""All encoders of a network as one launch for a few positions: the constants of kernels/persistent.hip.

At one position a kernel per step costs more than the step itself: 13 per layer take 3.4 us each on an H200.
In one launch a step waits for the steps before it by a counter in memory, in 0.8 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.compiler import KernelKey
from evaluator.backends.gpu.driver.target import MatrixUnit, Precision, Target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ACTIVATION_CODES, ProgramBuilder
from evaluator.backends.gpu.plan.persistent_form import AttentionShape, PersistentForm
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.program import Argument, Buffer, Launch, Matrix, PlanError, WordTable
from evaluator.network.spec import Activation, FloatArray, LayerNorm

MAX_POSITIONS, MOST_CHANNELS = 8, 2048
"""Limits of the kernel, and of positions times channels: above, many launches are as fast on an H200."""

_WAVES, _PHASES, _SQUARES = 8, 8, 4
_SUM_GAP = 8
_COMMON_BYTES = 2128
"""Constants of the kernel; the last is the size of its `Shared`."""

_SHAPES = ((64, 32), (32, 64), (32, 48), (32, 32), (32, 16), (16, 64), (16, 48), (16, 32), (16, 16))
"""Tiles of a product, rows by columns; row statistics need columns that are a power of two."""

_TILE_US, _INPUT_BYTES_PER_US, _WEIGHT_BYTES_PER_US, _IN_PARTS_US = 0.8, 1.0e5, 2.5e5, 1.0
"""Model for the choice of a tile: weights are loaded early, inputs are waited for. The last constant is the
cost of loading weights in parts."""


@dataclass(frozen=True, slots=True)
class PersistentSpace:
    """Use of shared memory: bytes of inputs and weights per wave, and maximum elements of k per chunk."""

    input_bytes: int
    weight_bytes: int
    chunk: int

    def chunk_of(self, k: int) -> int:
        """Return the elements of k per chunk: equal for every wave, if possible."""
        return 64 if self.chunk == 64 and k % (64 * _WAVES) == 0 else 32

    def fits(self, shape: tuple[int, int], k: int, precision: Precision, *, normalised: bool) -> bool:
        """Return True if a tile fits. normalised: gammas and betas are next to the inputs."""
        bm, bn = shape
        row = (self.chunk_of(k) + precision.chunk) * precision.bytes
        sums = bm * (bn + _SUM_GAP) * 4
        if max(bm * row, sums) > self.input_bytes or bn * row > self.weight_bytes:
            return False
        norms = bm * (2 * self.chunk_of(k) + precision.chunk) * precision.bytes
        return not normalised or max(norms, bm * row) <= self.input_bytes // 2

    def holds(self, shape: tuple[int, int], k: int, precision: Precision, *, normalised: bool) -> bool:
        """Return True if all weights of a tile fit at once."""
        bm, bn = shape
        elements = bn * (k + precision.chunk) + (bm * (2 * k + precision.chunk) if normalised else 0)
        return elements * precision.bytes <= _WAVES * self.weight_bytes


def space(target: Target) -> PersistentSpace:
    """Return the use of shared memory. With 227 KB, all weights of a tile of 64 columns fit at once for k =
    1024."""
    for shared, choice in (
        (227 << 10, PersistentSpace(11264, 16512, 64)),
        (163 << 10, PersistentSpace(10240, 9216, 64)),
        (99 << 10, PersistentSpace(5120, 4608, 64)),
        (64 << 10, PersistentSpace(5120, 2560, 32)),
    ):
        if target.shared_bytes >= shared:
            return choice
    raise PlanError(f"{target.name} has too little shared memory for the persistent kernel")


@dataclass(frozen=True, slots=True)
class SmolgenLayers:
    """compress -> dense1, norm1 -> dense2, norm2 -> generate."""

    compress: Linear
    dense1: Linear
    norm1: LayerNorm
    dense2: Linear
    norm2: LayerNorm
    generate: Linear


@dataclass(frozen=True, slots=True)
class EncoderLayers:
    """One packed encoder. before: norm of its input, the last one of the layer before. The gammas of `before`
    and norm1 are in the weights of qkv and ffn1, the betas in their biases."""

    before: LayerNorm | None

    qkv: Linear
    smolgen: SmolgenLayers | None
    output: Linear
    norm1: LayerNorm
    ffn1: Linear
    ffn2: Linear


@dataclass(frozen=True, slots=True)
class Tail:
    """Packed layers after an embedding: y = x + ffn2(ffn1(x)). Its norm is the first layer's `before`."""

    ffn1: Linear
    ffn2: Linear


class Encoders:
    """Appends one launch with all encoders of a body to a program."""

    def __init__(
        self, builder: ProgramBuilder, blocks: int, heads: int, depth: int, form: PersistentForm
    ) -> None:
        """blocks: of the grid, at most the device's multiprocessors. depth: of a head, padded.

        Raises PlanError for what the kernel does not support."""
        if builder.target.matrix_unit(builder.precision) is MatrixUnit.FMA:
            raise PlanError("the persistent kernel wants a matrix unit")
        self._b = builder
        if form.pairs and (builder.target.name != "sm_90" or blocks < 2):
            raise PlanError("pairs of blocks want clusters")
        self._blocks, self._form = (blocks - blocks % 2 if form.pairs else blocks), form
        self._heads, self._depth, self._width = heads, depth, 0
        self._space = space(builder.target)

    def launch(
        self, layers: Sequence[EncoderLayers], end: LayerNorm, x: Matrix, tail: Tail | None = None
    ) -> Matrix:
        """Append the launch. end: the last layer's second norm. x: the embedded board; the result is another
        buffer of that shape. Raises PlanError."""
        b = self._b
        if b.positions * x.width > MOST_CHANNELS:
            raise PlanError(f"many launches are as fast for {b.positions} positions of {x.width} channels")
        self._width = x.width
        if len({repr(self._constants(layer, x)) for layer in layers}) != 1:
            raise PlanError("the persistent kernel wants encoders of one shape")
        constants = self._constants(layers[0], x)
        constants["TAIL"] = int(tail is not None)
        words = [word for each in layers for word in self._words(each)]
        if tail is not None:
            self._check_tail(tail, layers[0])
            words = [*self._tail_words(tail, len(words) // len(layers)), *words]
        table = WordTable(f"persistent.{b.positions}.{self._form.name}.layers", tuple(words))
        count = len(layers) + (tail is not None)
        shared = self._shared_bytes(table)
        out = b.matrix("persistent.x", x.rows, x.width)
        b.program.steps.append(
            Launch(
                KernelKey("persistent", b.precision, tuple(constants.items())),
                (self._blocks, 1, 1),
                _WAVES * b.target.wave,
                shared,
                (
                    table,
                    count,
                    self._vector("persistent.end.gammas", end.gammas),
                    self._vector("persistent.end.betas", end.betas),
                    float(end.epsilon),
                    x.buffer,
                    out.buffer,
                    *self._between(constants, x),
                    b.counters(f"persistent.{b.positions}.counters", count * _PHASES + 1),
                    self._blocks,
                ),
                "encoders",
                cluster=2 if self._form.pairs else 0,
                together=self._blocks if self._form.pairs else 1,
                cooperative=True,
            )
        )
        return out

    def _shared_bytes(self, table: WordTable) -> int:
        """Return the dynamic shared memory of a block. Raises PlanError if it is more than available."""
        b, where = self._b, self._space
        shared = _WAVES * (where.input_bytes + where.weight_bytes) + _COMMON_BYTES + 8 * len(table.words)
        chunk = b.precision.chunk
        attention = 64 * (3 * (self._depth + chunk) + 64 + chunk) * b.precision.bytes
        if shared > b.target.shared_bytes or attention > _WAVES * where.input_bytes:
            raise PlanError("the persistent kernel needs more shared memory than there is")
        return shared

    def _between(self, constants: dict[str, int], x: Matrix) -> tuple[Argument, ...]:
        """Return the buffers of the kernel's intermediate results, in the kernel's order."""
        b, heads, positions, rows = self._b, self._heads, self._b.positions, x.rows
        squeezed, generated = constants.get("DENSE1_WIDTH", 0), heads * constants.get("GENERATED", 0)

        def work(name: str, elements: int) -> Buffer:
            return b.work(f"persistent.{name}", max(elements, 1) * b.precision.bytes)

        return (
            work("y", rows * x.width),
            work("z", rows * x.width),
            work("qkv", rows * 3 * heads * self._depth),
            work("mixed", rows * heads * self._depth),
            work("hidden", rows * constants["HIDDEN"]),
            b.work("persistent.parts", 4 * positions * (64 // _SQUARES) * max(squeezed, 1)),
            work("s2", positions * generated),
            work("logits", positions * heads * 4096 if squeezed else 0),
            b.work("persistent.statistics", 8 * positions * max(generated, 1)),
            b.work("persistent.rows0", 8 * rows),
            b.work("persistent.rows1", 8 * rows),
        )

    def _constants(self, layer: EncoderLayers, x: Matrix) -> dict[str, int]:
        """Return the constants of a layer's shape. Raises PlanError for what the kernel does not support."""
        if x.width != x.stride:
            raise PlanError(f"a width of {x.width} is not a multiple of {self._b.precision.chunk}")
        heads, depth, width, rows = self._heads, self._depth, x.width, x.rows
        hidden, model = len(layer.ffn1.weights), heads * depth
        smolgen, where = layer.smolgen, self._space
        constants = {
            "POSITIONS": self._b.positions,
            "WIDTH": width,
            "HEADS": heads,
            "DEPTH": depth,
            "SLICE": depth,
            "HIDDEN": hidden,
            "BIAS": int(smolgen is not None),
            "SHARE_SPACE": 0,
            "MAX_KC": where.chunk,
            "A_BYTES": where.input_bytes,
            "B_BYTES": where.weight_bytes,
            "FFN_ACTIVATION": ACTIVATION_CODES[layer.ffn1.activation],
            "PAIRS": int(self._form.pairs),
            "LOGITS_IN_ATTENTION": 0,
        }
        # The squeezing blocks do not take part, if there are others.
        squeezing = 64 // _SQUARES * self._b.positions if smolgen else 0
        constants |= self._tile("QKV", layer.qkv, rows, 3 * model, width, blocks=self._blocks - squeezing)
        constants |= self._tile("OUTPUT", layer.output, rows, width, model)
        constants |= self._tile("FFN1", layer.ffn1, rows, hidden, width)
        constants |= self._tile("FFN2", layer.ffn2, rows, width, hidden)
        for linear in (layer.qkv, layer.output, layer.ffn2):
            if linear.activation is not Activation.NONE:
                raise PlanError(f"{linear.name}: an activation there is not supported")
        return constants if smolgen is None else constants | self._smolgen_constants(smolgen, width)

    def _smolgen_constants(self, smolgen: SmolgenLayers, width: int) -> dict[str, int]:
        """Return the constants of smolgen's layers. Raises PlanError as `_constants` does."""
        heads, where = self._heads, self._space
        positions, compressed = self._b.positions, len(smolgen.compress.weights)
        first, generated = len(smolgen.dense1.weights), smolgen.generate.weights.shape[1]
        if (len(smolgen.norm1.gammas), len(smolgen.norm2.gammas)) != (first, heads * generated):
            raise PlanError("the persistent kernel wants smolgen's layers without padding")
        if max(first, generated) > _WAVES * min(where.chunk_of(first), where.chunk_of(generated)):
            raise PlanError("smolgen's layers are too wide for the persistent kernel")
        if smolgen.dense1.weights.shape != (first, 64 * compressed):
            raise PlanError(f"{smolgen.dense1.name}: weights of {smolgen.dense1.weights.shape}")
        self._check_squeeze(compressed, first, width)
        constants = self._tile("DENSE2", smolgen.dense2, positions, heads * generated, first, normalised=True)
        constants |= self._tile(
            "GENERATE", smolgen.generate, positions * heads, 4096, generated, normalised=True
        )
        if self._form.logits_in_attention:
            shape = AttentionShape(positions, heads, self._depth, generated, self._b.precision)
            tile = shape.tile(self._blocks, where.input_bytes, where.weight_bytes)
            if tile is None:
                raise PlanError("no tile of attention with its logits fits the persistent kernel")
            constants |= tile
        return constants | {
            "COMPRESSED": compressed,
            "DENSE1_WIDTH": first,
            "GENERATED": generated,
            "DENSE1_ACTIVATION": ACTIVATION_CODES[smolgen.dense1.activation],
            "DENSE2_ACTIVATION": ACTIVATION_CODES[smolgen.dense2.activation],
        }

    def _check_tail(self, tail: Tail, layer: EncoderLayers) -> None:
        """Raise PlanError unless the tail has the shape of a layer's second half."""
        for own, other in ((tail.ffn1, layer.ffn1), (tail.ffn2, layer.ffn2)):
            if own.weights.shape != other.weights.shape or own.activation is not other.activation:
                raise PlanError(
                    "the persistent kernel wants an embedding's end as wide as the encoders' ends"
                )

    def _check_squeeze(self, compressed: int, outputs: int, width: int) -> None:
        """Raise PlanError unless the kernel can process four squares at once
        (kernels/persistent_squeeze.h)."""
        chunk, size, where = self._b.precision.chunk, self._b.precision.bytes, self._space
        squeezed = _SQUARES * compressed
        if width % 16 or squeezed % 16:
            raise PlanError(f"smolgen of {width} channels: the persistent kernel needs a multiple of 16")
        row = (width + chunk) * size
        weights = pack.round_up(compressed, 16) * row
        slices, vectors = outputs * (squeezed + chunk) * size, 8 * width
        rows = max(16 * row, _SQUARES * row + (4 * _WAVES + 2) * squeezed)
        if weights + vectors + rows > _WAVES * where.weight_bytes or slices > _WAVES * where.input_bytes:
            raise PlanError("smolgen's first layers do not fit the persistent kernel's shared memory")

    def _tile(
        self, name: str, layer: Linear, m: int, n: int, k: int, *, normalised: bool = False, blocks: int = 0
    ) -> dict[str, int]:
        """Return the best tile for a product by the model. blocks: that work on it, if not all."""
        blocks = blocks if blocks > 0 else self._blocks
        precision = self._b.precision
        if layer.weights.shape != (n, k) or layer.convolution:
            raise PlanError(f"{layer.name}: weights of {layer.weights.shape} where {(n, k)} are expected")
        if layer.biases is not None and layer.biases.ndim != 1:
            raise PlanError(f"{layer.name}: biases by square are not supported")

        def microseconds(shape: tuple[int, int]) -> float:
            bm, bn = shape
            tiles = -(-m // bm) * -(-n // bn)
            inputs, weights = (each * k * precision.bytes for each in (min(m, bm), bn))
            once = _TILE_US + inputs / _INPUT_BYTES_PER_US + weights / _WEIGHT_BYTES_PER_US
            if not self._space.holds(shape, k, precision, normalised=normalised):
                once += _IN_PARTS_US
            return -(-tiles // blocks) * once + tiles * 1e-4 + bm * 1e-6

        possible = [
            each
            for each in _SHAPES
            if self._space.fits(each, k, precision, normalised=normalised)
            and not (name == "DENSE2" and each[1] == 48)
            and not (name in ("QKV", "FFN1") and each[0] == 64)  # it spills registers with the rows' sums
        ]
        if not possible:
            raise PlanError(f"{layer.name}: no tile fits")
        bm, bn = min(possible, key=microseconds)
        return {f"{name}_M": bm, f"{name}_N": bn}

    def _words(self, layer: EncoderLayers) -> list[Buffer | int | float | None]:
        """Return the kernel's `Layer` as words."""
        words: list[Buffer | int | float | None] = []
        for linear in (layer.ffn1, layer.ffn2, layer.qkv, layer.output):
            words += self._product(linear)
        words += [self._sums(layer.ffn1), self._sums(layer.qkv)]
        words += self._norm(layer.output.name, layer.norm1)
        words += self._norm(f"{layer.qkv.name}.before", layer.before)
        smolgen = layer.smolgen
        if smolgen is not None:
            compress, slices = self._dense(smolgen.compress)[0], self._slices(smolgen)
            padded = self._form.pairs or self._form.logits_in_attention
            generate = self._padded(smolgen.generate) if padded else self._dense(smolgen.generate)[0]
            words += [compress, slices, self._dense(smolgen.dense1)[1], generate]
            words += self._product(smolgen.dense2)
            words += [self._pairs(smolgen.dense1.name, smolgen.norm1)]
            words += [self._pairs(smolgen.dense2.name, smolgen.norm2)]
            words += [float(smolgen.norm1.epsilon), float(smolgen.norm2.epsilon)]
        return words  # an even number, because a layer is a multiple of 16 bytes

    def _product(self, layer: Linear) -> tuple[Buffer, Buffer | None]:
        """Return weights in the form of the kernel's products, and biases."""
        weights, biases = self._dense(layer)
        return (self._padded(layer) if self._form.pairs else weights), biases

    def _padded(self, layer: Linear) -> Buffer:
        """Return weights with a chunk of padding between rows."""
        gap = ((0, 0), (0, self._b.precision.chunk))
        return self._b.weight(f"{layer.name}.padded", lambda: np.pad(layer.weights, gap))

    def _dense(self, layer: Linear) -> tuple[Buffer, Buffer | None]:
        b, biases = self._b, layer.biases
        return (
            b.weight(f"{layer.name}.weights", lambda: layer.weights),
            None if biases is None else b.weight(f"{layer.name}.biases", lambda: biases),
        )

    def _tail_words(self, tail: Tail, count: int) -> list[Buffer | int | float | None]:
        """Return the kernel's `Layer` for the tail, which has only the last two products of a layer."""
        words: list[Buffer | int | float | None] = [*self._product(tail.ffn1), *self._product(tail.ffn2)]
        words += [None, None, None, None, self._sums(tail.ffn1), None, *self._norm("tail.between", None)]
        return words + [None] * (count - len(words))

    def _sums(self, layer: Linear) -> Buffer:
        """Return the sums of the rows of a layer's weights, as stored."""

        def make() -> FloatArray:
            values = pack.floats(layer.weights, self._b.precision)
            return np.asarray(values.sum(axis=1, dtype=np.float64), np.float32)

        return self._b.weight(f"{layer.name}.sums", make)

    def _slices(self, smolgen: SmolgenLayers) -> Buffer:
        """Return the weights of dense1 in the order of its tiles: [16 groups of squares][outputs][inputs, and
        a chunk of padding between rows in shared memory]."""
        chunk = self._b.precision.chunk

        def make() -> NDArray[Any]:
            weights = smolgen.dense1.weights
            slices = weights.reshape(len(weights), 64 // _SQUARES, -1).swapaxes(0, 1)
            return np.pad(slices, ((0, 0), (0, 0), (0, chunk)))

        return self._b.weight(f"{smolgen.dense1.name}.slices", make)

    def _vector(self, name: str, values: Any) -> Buffer:
        return self._b.weight(name, lambda: pack.vector(values, self._b.precision))

    def _norm(self, name: str, norm: LayerNorm | None) -> list[Buffer | float]:
        """Return the kernel's `Norm`; None leaves a row unchanged."""
        if norm is None:
            norm = LayerNorm(np.ones(self._width, np.float32), np.zeros(self._width, np.float32), -1.0)
        return [
            self._vector(f"{name}.gammas", norm.gammas),
            self._vector(f"{name}.betas", norm.betas),
            float(norm.epsilon),
        ]

    def _pairs(self, name: str, norm: LayerNorm) -> Buffer:
        """Return gammas and betas in alternating chunks."""

        def make() -> NDArray[Any]:
            chunk = self._b.precision.chunk
            pairs = np.stack([norm.gammas.reshape(-1, chunk), norm.betas.reshape(-1, chunk)], axis=1)
            return pack.stored(pairs.reshape(-1), self._b.precision)

        return self._b.weight(f"{name}.norm", make)

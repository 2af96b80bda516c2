"""The operations that a plan is made of: each appends the launches of one fused step to a Program.

Shapes: a board is a Matrix of positions * 64 rows (one per square), a vector one of positions rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu import hopper
from evaluator.gpu import weights as pack
from evaluator.gpu.compiler import KernelKey
from evaluator.gpu.gemm import Choice, Chooser, Product
from evaluator.gpu.hopper import HopperTile
from evaluator.gpu.library import library_product
from evaluator.gpu.packed import Packed
from evaluator.gpu.program import (
    Argument,
    Branch,
    Buffer,
    Launch,
    LibraryStep,
    Matrix,
    Program,
    Space,
)
from evaluator.gpu.target import Precision, Target
from evaluator.gpu.tensor_maps import rows_map, weights_map
from evaluator.gpu.weights import round_up
from evaluator.network.spec import Activation, FloatArray, Gating, LayerNorm, SEUnit

ACTIVATION_CODES = {
    Activation.NONE: 0,
    Activation.RELU: 1,
    Activation.RELU_SQUARED: 2,
    Activation.MISH: 3,
    Activation.SWISH: 4,
    Activation.SELU: 5,
    Activation.TANH: 6,
    Activation.SIGMOID: 7,
}
"""As kernels/activation.h numbers them."""

ROW_COUNTERS = 1 << 14
"""Of kernels/gemm_hopper.hip: four for each set of blocks that share rows. They are 0 between launches."""

_ROW_ELEMENTS_PER_LANE = 32
"""Of kernels/rows.hip: what a thread keeps in registers before a row gets more threads."""


_MOST_DEPTH_AT_ONCE = 128
"""Of kernels/attention.hip: a lane of a wave of 32 without a matrix unit then holds 64 sums."""

_PIPELINED_ROWS = 8192
"""From so many rows on a wave of kernels/rows.hip takes several, one after the other."""

_CHAINED_POSITIONS = 8
"""From so many positions on everything runs as one chain of kernels. For fewer, smolgen is a second branch
beside the products for q, k and v: one position of the BT4 shape takes 0.78 ms that way, 0.84 ms in a chain.
At 32 the chain is faster, by 3 %."""

_SHARED_PRODUCT_POSITIONS = 96
"""Chains of fewer positions compute what smolgen takes of each square in one product with q, k and v. For
more, the odd width costs the product more (BT4 at 256: 158 us where two take 147 and 7)."""


class PlanError(Exception):
    """The kernels cannot run this network; the message says what is in the way."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A dense layer or a convolution, ready for kernels/gemm.hip.

    name: of the weights; width: outputs. weights: stored [width padded, k padded]; biases: float32
    [width padded] or [64, width padded]. convolution: 3x3, k = 9 * padded channels. packed: the same weights
    as codes, where they are codes.
    """

    name: str
    width: int
    weights: NDArray[Any]
    biases: FloatArray | None
    activation: Activation
    convolution: bool = False
    packed: Packed | None = None


@dataclass(frozen=True, slots=True)
class After:
    """What follows a product in the same pass: norm, then gating.

    parts: (width, used) where a row is several parts of `width` elements, of which the first `used` count for
    the norm; its gammas and betas are 0 for the others. (0, 0): all of the row counts.
    """

    norm: LayerNorm | None = None
    gating: Gating | None = None
    parts: tuple[int, int] = (0, 0)

    def __bool__(self) -> bool:
        return self.norm is not None or self.gating is not None


class Builder:
    """Appends to `program`. Weights are made once: `known` carries them from one batch size to the next."""

    def __init__(
        self,
        positions: int,
        target: Target,
        precision: Precision,
        choose: Chooser,
        known: dict[str, NDArray[Any]] | None = None,
    ) -> None:
        self.program = Program(positions, weights={} if known is None else known)
        self.positions = positions
        self.target = target
        self.precision = precision
        self._choose = choose

        self._aside = False
        self._forked = False

    # -- memory ----------------------------------------------------------------------------------------

    def weight(self, name: str, make: Callable[[], NDArray[Any]]) -> Buffer:
        """An array on the device, made when it is first asked for."""
        if name not in self.program.weights:
            try:
                self.program.weights[name] = np.ascontiguousarray(make())
            except pack.WeightError as error:
                raise PlanError(f"{name}: {error}") from error
        return Buffer(Space.WEIGHTS, name)

    def work(self, name: str, size: int) -> Buffer:
        """A buffer of at least `size` bytes; the same name is the same memory."""
        self.program.work[name] = max(size, self.program.work.get(name, 0))
        return Buffer(Space.WORK, name)

    def matrix(self, name: str, rows: int, width: int) -> Matrix:
        stride = round_up(width, self.precision.chunk)
        return Matrix(self.work(name, rows * stride * self.precision.bytes), rows, width, stride)

    @property
    def chained(self) -> bool:
        """Whether everything is one chain of kernels, a second branch not paying."""
        return self.positions >= _CHAINED_POSITIONS

    @property
    def shares_products(self) -> bool:
        """Whether one product of twice the purpose beats two."""
        return self.chained and self.positions < _SHARED_PRODUCT_POSITIONS

    @staticmethod
    def exchange(name: str) -> Buffer:
        return Buffer(Space.EXCHANGE, name)

    # -- order -----------------------------------------------------------------------------------------

    def fork(self) -> None:
        """What follows, until `main`, may run beside what comes after that."""
        self._forked = not self.chained
        if self._forked:
            self.program.steps.append(Branch.FORK)
            self._aside = True

    def main(self) -> None:
        """End of the second branch's launches."""
        self._aside = False

    def join(self) -> None:
        """From here on the second branch has ended."""
        if self._forked:
            self.program.steps.append(Branch.JOIN)

    def launch(
        self,
        file: str,
        constants: dict[str, int],
        grid: tuple[int, int, int],
        threads: int,
        arguments: tuple[Argument, ...],
        label: str,
        *,
        shared_bytes: int = 0,
        cluster: int = 0,
        together: int = 1,
    ) -> None:
        if shared_bytes > self.target.shared_bytes:
            raise PlanError(
                f"{label}: needs {shared_bytes} bytes of shared memory per block; {self.target.name} has "
                f"{self.target.shared_bytes}"
            )
        key = KernelKey(file, self.precision, tuple(constants.items()))
        self.program.steps.append(
            Launch(key, grid, threads, shared_bytes, arguments, label, self._aside, cluster, together)
        )

    # -- operations ------------------------------------------------------------------------------------

    def linear(
        self,
        layer: Linear,
        a: Matrix,
        out: str,
        *,
        residual: Matrix | None = None,
        after: After | None = None,
    ) -> Matrix:
        """activation(a @ weights + biases + residual), then `after`, into a matrix of rows like a's.

        A product that is split along k, or that something follows, ends in kernels/rows.hip.
        """
        after = after or After()
        result = self.matrix(out, a.rows, layer.width)
        by_square = layer.biases is not None and layer.biases.ndim == 2
        n, k = layer.weights.shape
        expected = 9 * a.stride if layer.convolution else a.width if a.segment else a.stride
        if k != expected:
            raise PlanError(f"{layer.name}: takes {k} inputs, but gets {expected}")
        product = Product(
            m=a.rows,
            n=n,
            k=k,
            activation=layer.activation,
            residual=residual is not None,
            convolution=layer.convolution,
            bias_by_square=by_square,
            bias=layer.biases is not None,
            followed=bool(after),
            segment=a.segment,
            weight_bits=0 if layer.packed is None else layer.packed.format.bits,
            normalised=after.norm is not None and after.gating is None,
        )
        choice = self._choose(product)
        if choice.hopper is not None:
            return self._hopper(layer, choice.hopper, a, result, residual, after)
        if choice.tile is None:
            return self._library(layer, choice, product, a, result, residual, after)
        tile = choice.tile
        split = choice.splits > 1
        steps = -(-k // tile.block_k)
        beside = ".aside" if self._aside else ""  # both branches may be running
        product_out = self.matrix(f"product{beside}", a.rows, layer.width) if after and not split else result
        partials = self.work(f"partials{beside}", 4 * a.rows * n * choice.splits) if split else None
        biases = layer.biases
        bias = None if biases is None else self.weight(f"{layer.name}.biases", lambda: biases)
        skip = None if residual is None else residual.buffer
        packed = layer.packed if choice.packed else None
        bits = 0 if packed is None else packed.format.bits
        if packed is None:
            weights, scales = self.weight(f"{layer.name}.weights", lambda: layer.weights), None
        else:
            weights = self.weight(f"{layer.name}.codes", lambda: packed.codes)
            scales = self.weight(f"{layer.name}.scales", lambda: packed.scales)
        self.launch(
            "gemm",
            {
                "BLOCK_M": tile.block_m,
                "BLOCK_N": tile.block_n,
                "BLOCK_K": tile.block_k,
                "WARPS_M": tile.warps_m,
                "WARPS_N": tile.warps_n,
                "WARPS_K": tile.warps_k,
                "STAGES": tile.stages,
                "SPLIT": int(split),
                "ACTIVATION": 0 if split else ACTIVATION_CODES[layer.activation],
                "CONVOLUTION": int(layer.convolution),
                "SEGMENT": a.segment,
                "PACKED": bits,
                "RESIDUAL": int(residual is not None and not split),
                "BIAS": int(bias is not None and not by_square and not split),
                "BIAS_BY_SQUARE": int(by_square),
            },
            (-(-n // tile.block_n), -(-a.rows // tile.block_m), choice.splits),
            tile.warps * self.target.wave,
            (
                a.buffer,
                weights,
                scales,
                None if split else bias,
                None if split else skip,
                None if split else product_out.buffer,
                partials,
                a.rows,
                n,
                k,
                a.stride,
                result.stride,
                a.offset if a.segment else a.stride,
                -(-steps // choice.splits),
            ),
            layer.name,
            shared_bytes=tile.shared_bytes(self.target, self.precision, bits),
        )
        if split:
            self._rows(layer.name, result, None, partials, choice.splits, bias, skip, layer.activation, after)
        elif after:
            self._rows(layer.name, result, product_out, None, 1, None, None, Activation.NONE, after)
        return result

    def _hopper(
        self,
        layer: Linear,
        tile: HopperTile,
        a: Matrix,
        result: Matrix,
        residual: Matrix | None,
        after: After,
    ) -> Matrix:
        """The same by kernels/gemm_hopper.hip, which can also do the layer norm that follows."""
        n, k = layer.weights.shape
        biases, precision = layer.biases, self.precision
        norm = after.norm if tile.normalise else None
        teams = 2 * tile.blocks(a.rows, n) // tile.row_blocks if tile.row_blocks else 0
        later = After() if tile.normalise else after
        beside = ".aside" if self._aside else ""
        out = self.matrix(f"product{beside}", a.rows, layer.width) if later else result
        weights = self.weight(f"{layer.name}.weights", lambda: layer.weights)
        self.launch(
            "gemm_hopper",
            {
                "BLOCK_N": tile.block_n,
                "STAGES": tile.stages,
                "CLUSTER_M": tile.cluster_m,
                "CLUSTER_N": tile.cluster_n,
                "ACTIVATION": ACTIVATION_CODES[layer.activation],
                "RESIDUAL": int(residual is not None),
                "BIAS": int(biases is not None),
                "NORMALISE": int(norm is not None),
                "ROW_BLOCKS": tile.row_blocks,
            },
            (tile.blocks(a.rows, n), 1, 1),
            hopper.THREADS,
            (
                rows_map(a.buffer, a.rows, k, a.stride, precision),
                weights_map(weights, n, k, tile.block_n, precision),
                None if biases is None else self.weight(f"{layer.name}.biases", lambda: biases),
                None if residual is None else residual.buffer,
                *self._norm(layer.name, norm),
                out.buffer,
                a.rows,
                n,
                k,
                out.stride,
                0.0 if norm is None else float(norm.epsilon),
                self.work("row_parts", teams * 2 * 2 * tile.row_blocks * 64 * 8) if teams else None,
                self.weight("row_counters", lambda: np.zeros(ROW_COUNTERS, np.uint32)) if teams else None,
            ),
            layer.name,
            shared_bytes=tile.shared_bytes,
            cluster=tile.cluster,
            together=tile.row_blocks or 1,
        )
        if later:
            self._rows(layer.name, result, out, None, 1, None, None, Activation.NONE, later)
        return result

    def _library(
        self,
        layer: Linear,
        choice: Choice,
        product: Product,
        a: Matrix,
        result: Matrix,
        residual: Matrix | None,
        after: After,
    ) -> Matrix:
        """The same by a vendor's library; another pass does what that does not."""
        own = library_product(product, choice.library, fused=choice.fused, lda=a.stride, ldo=result.stride)
        passed_on = Activation.NONE if own.activation is layer.activation else layer.activation
        biases = layer.biases
        bias = bias_passed_on = None
        if biases is not None and own.bias:
            name = f"{layer.name}.library_biases"
            bias = self.weight(name, lambda: pack.stored(biases, self.precision))
        elif biases is not None:
            bias_passed_on = self.weight(f"{layer.name}.biases", lambda: biases)
        residual_passed_on = None if residual is None or own.residual else residual.buffer
        later = (bias_passed_on, residual_passed_on)
        last = not after and passed_on is Activation.NONE and later == (None, None)
        beside = ".aside" if self._aside else ""
        out = result if last else self.matrix(f"product{beside}", a.rows, layer.width)
        self.program.steps.append(
            LibraryStep(
                choice.library,
                own,
                choice.algorithm,
                a.buffer,
                self.weight(f"{layer.name}.weights", lambda: layer.weights),
                bias,
                residual.buffer if residual is not None and own.residual else None,
                out.buffer,
                layer.name,
                self._aside,
            )
        )
        if not last:
            self._rows(layer.name, result, out, None, 1, *later, passed_on, after)
        return result

    def _rows(
        self,
        name: str,
        out: Matrix,
        source: Matrix | None,
        partials: Buffer | None,
        splits: int,
        bias: Buffer | None,
        residual: Buffer | None,
        activation: Activation,
        after: After,
    ) -> None:
        wave = self.target.wave
        waves = 1
        while waves < 8 and out.stride > _ROW_ELEMENTS_PER_LANE * wave * waves:
            waves *= 2
        rows = max(1, 4 // waves)
        passes = 4 if out.rows >= _PIPELINED_ROWS and partials is None else 1
        norm, gating, chunk = after.norm, after.gating, self.precision.chunk
        self.launch(
            "rows",
            {
                "WIDTH": out.width,
                "LANES": waves * wave,
                "ROWS": rows,
                "PASSES": passes,
                "SPLIT": int(partials is not None),
                "ACTIVATION": ACTIVATION_CODES[activation],
                "BIAS": int(bias is not None),
                "RESIDUAL": int(residual is not None),
                "NORMALISE": int(norm is not None),
                "PART": after.parts[0],
                "PART_USED": after.parts[1],
                "GATE": int(gating is not None),
            },
            (-(-out.rows // (rows * passes)), 1, 1),
            waves * wave * rows,
            (
                None if source is None else source.buffer,
                partials,
                bias,
                residual,
                *self._norm(name, norm),
                None
                if gating is None
                else self.weight(f"{name}.multiply", lambda: pack.padded(gating.multiply, 1, chunk)),
                None
                if gating is None
                else self.weight(f"{name}.add", lambda: pack.padded(gating.add, 1, chunk)),
                out.buffer,
                out.rows,
                splits,
                0.0 if norm is None else float(norm.epsilon),
            ),
            f"{name}, rows",
        )

    def _norm(self, name: str, norm: LayerNorm | None) -> tuple[Buffer | None, Buffer | None]:
        """Gammas and betas."""
        if norm is None:
            return None, None
        return (
            self.weight(f"{name}.gammas", lambda: pack.vector(norm.gammas, self.precision)),
            self.weight(f"{name}.betas", lambda: pack.vector(norm.betas, self.precision)),
        )

    def attention(self, qkv: Matrix, heads: int, depth: int, bias: Matrix | None, name: str) -> Matrix:
        """softmax(q k^T + bias) v. qkv: a board that begins with 3 * heads * depth elements; bias:
        [positions * heads, 4096]."""
        out = self.matrix("attention", qkv.rows, heads * depth)
        chunk, size = self.precision.chunk, self.precision.bytes
        available = min(self.target.shared_bytes, 64 << 10)
        part = depth
        shared = 64 * (3 * (depth + chunk) + 64 + chunk) * size
        share_space = shared > available
        if share_space:
            for part in (depth, 64, 48, 32, 16):
                shared = 64 * (max(part, 64) + part + 2 * chunk) * size
                if part <= _MOST_DEPTH_AT_ONCE and depth % part == 0 and shared <= available:
                    break
        self.launch(
            "attention",
            {
                "DEPTH": depth,
                "SLICE": part,
                "BIAS": int(bias is not None),
                "SHARE_SPACE": int(share_space),
            },
            (heads, self.positions, 1),
            4 * self.target.wave,
            (qkv.buffer, None if bias is None else bias.buffer, out.buffer, heads, qkv.stride),
            name,
            shared_bytes=shared,
        )
        return out

    def expand(self, *, appended: Matrix | None, pieces: bool) -> Matrix:
        """The packed positions as a board of planes, `appended` after them, or as [positions, 768] pieces."""
        if pieces:
            out = self.matrix("pieces", self.positions, 768)
            constants = {"STRIDE": 112, "TOKENS": 0, "PIECES": 1, "APPENDED": 0}
        else:
            extra = 0 if appended is None else appended.width // 64
            out = self.matrix("tokens", 64 * self.positions, 112 + extra)
            constants = {"STRIDE": out.stride, "TOKENS": 1, "PIECES": 0, "APPENDED": extra}
        parts = 1 if pieces else max(1, min(8, 64 // self.positions))
        self.launch(
            "expand",
            constants | {"PARTS": parts},
            (self.positions, parts, 1),
            256,
            (
                self.exchange("positions"),
                None if appended is None else appended.buffer,
                None if pieces else out.buffer,
                out.buffer if pieces else None,
            ),
            "pieces" if pieces else "tokens",
        )
        return out

    def squeeze_excite(
        self, unit: SEUnit, y: Matrix, skip: Matrix, activation: Activation, out: str, name: str
    ) -> Matrix:
        """activation(sigmoid(z[:C]) y + z[C:] + skip) with z from the mean of y."""
        result = self.matrix(out, y.rows, y.width)
        channels, hidden = y.width, len(unit.squeeze.biases)
        self.launch(
            "squeeze_excite",
            {
                "CHANNELS": channels,
                "HIDDEN": hidden,
                "STRIDE": y.stride,
                "SQUEEZE_ACTIVATION": ACTIVATION_CODES[unit.squeeze.activation],
                "ACTIVATION": ACTIVATION_CODES[activation],
            },
            (self.positions, 1, 1),
            256,
            (
                y.buffer,
                skip.buffer,
                self.weight(f"{name}.squeeze", lambda: unit.squeeze.weights.T),
                self.weight(f"{name}.squeeze_bias", lambda: unit.squeeze.biases),
                self.weight(f"{name}.excite", lambda: unit.excite.weights.T),
                self.weight(f"{name}.excite_bias", lambda: unit.excite.biases),
                result.buffer,
            ),
            name,
        )
        return result

    def policy_of_products(self, qk: Matrix, promotion: FloatArray, source: NDArray[np.int32]) -> None:
        """The logits of the legal moves of an attention policy. qk: a board of q and k side by side."""
        depth = qk.stride // 2
        offsets = np.zeros((3, depth), np.float32)
        offsets[:, : promotion.shape[1]] = promotion[:3] + promotion[3]
        self._policy(
            {"ATTENTION_POLICY": 1, "DEPTH": depth},
            qk,
            self.weight("policy.promotion", lambda: offsets),
            source,
        )

    def policy_of_entries(self, entries: Matrix, per_position: int, source: NDArray[np.int32]) -> None:
        """The logits of the legal moves, gathered. source: [1858], an index below per_position."""
        self._policy({"ATTENTION_POLICY": 0, "ENTRIES": per_position}, entries, None, source)

    def _policy(
        self, constants: dict[str, int], values: Matrix, promotion: Buffer | None, source: NDArray[np.int32]
    ) -> None:
        self.launch(
            "policy",
            constants,
            (self.positions, 1, 1),
            8 * self.target.wave,
            (
                values.buffer,
                promotion,
                self.weight("policy.source", lambda: source.astype(np.int32)),
                self.exchange("move_offsets"),
                self.exchange("moves"),
                self.exchange("logits"),
            ),
            "policy.gather",
        )

    def outputs(
        self,
        value: Matrix,
        value_layer: tuple[FloatArray, FloatArray, Activation],
        moves: Matrix | None,
        moves_layer: tuple[FloatArray, FloatArray, Activation] | None,
    ) -> None:
        """The last layers of the value and moves-left heads: (weights, biases, activation) each."""
        weights, biases, activation = value_layer
        constants = {
            "WDL": int(len(biases) == 3),
            "VALUE_WIDTH": value.width,
            "VALUE_STRIDE": value.stride,
            "VALUE_ACTIVATION": ACTIVATION_CODES[activation],
            "MOVES_LEFT": int(moves is not None),
        }
        moves_arguments: tuple[Argument, ...] = (None, None, None)
        if moves is not None and moves_layer is not None:
            moves_weights, moves_biases, moves_activation = moves_layer
            constants |= {
                "MOVES_WIDTH": moves.width,
                "MOVES_STRIDE": moves.stride,
                "MOVES_ACTIVATION": ACTIVATION_CODES[moves_activation],
            }
            moves_arguments = (
                moves.buffer,
                self.weight("moves_left.weights", lambda: moves_weights),
                self.weight("moves_left.biases", lambda: moves_biases),
            )
        self.launch(
            "outputs",
            constants,
            (self.positions, 1, 1),
            2 * self.target.wave,
            (
                value.buffer,
                self.weight("value.weights", lambda: weights),
                self.weight("value.biases", lambda: biases),
                *moves_arguments,
                self.exchange("wdl"),
                self.exchange("moves_left"),
            ),
            "outputs",
        )

    def view(self, matrix: Matrix, rows: int) -> Matrix:
        """The same memory with another number of rows."""
        stride = matrix.rows * matrix.stride // rows
        return replace(matrix, rows=rows, width=stride, stride=stride)

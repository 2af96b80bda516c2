"""Matrix products with what follows in the same pass, as launches: by our kernels or a vendor's library."""

from __future__ import annotations

import numpy as np

from evaluator.gpu.blas.library import library_product
from evaluator.gpu.blas.product import Product
from evaluator.gpu.plan import hopper
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.hopper import HopperTile
from evaluator.gpu.plan.program import Buffer, LibraryStep, Matrix
from evaluator.gpu.plan.steps import ACTIVATION_CODES, After, Linear, PlanError, Steps
from evaluator.gpu.plan.tensor_maps import rows_map, weights_map
from evaluator.gpu.plan.tiles import Choice
from evaluator.network.spec import Activation, LayerNorm

ROW_COUNTERS = 1 << 14
"""Of kernels/gemm_hopper.hip: four for each set of blocks that share rows. They are 0 between launches."""

_ROW_ELEMENTS_PER_LANE = 32
"""Of kernels/rows.hip: what a thread keeps in registers before a row gets more threads."""

_PIPELINED_ROWS = 8192
"""From so many rows on a wave of kernels/rows.hip takes several, one after the other."""


class Products(Steps):
    """Appends matrix products."""

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

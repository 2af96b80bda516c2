"""Matrix products with what follows in the same pass, as launches.

`linear` asks the builder's chooser how a product is computed; one function for each answer appends it: by the
general kernel (whole or split along k, from weights or their codes), by the one for Hopper, or by a vendor's
library. What that leaves to be done is done by a pass over the rows (epilogue.py), or a norm by those who
read them (left_norms.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from evaluator.gpu.blas.library import library_product
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Target
from evaluator.gpu.plan import hopper
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.builder import ACTIVATION_CODES, FORMAT_CODES, Geometry, ProgramBuilder
from evaluator.gpu.plan.epilogue import After, Epilogue, Partials, finish_rows, norm_vectors
from evaluator.gpu.plan.hopper import HopperTile
from evaluator.gpu.plan.linear_layer import E4m3Scales, Int8Scales, Linear
from evaluator.gpu.plan.program import Buffer, LeftNorm, LibraryStep, Matrix, PlanError
from evaluator.gpu.plan.quantised import Packed
from evaluator.gpu.plan.tensor_maps import rows_map, weights_map
from evaluator.gpu.plan.tiles import Choice, Tile
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.eight_bits import EightBits
from evaluator.network.spec import Activation, FloatArray, RoundedInputs

ROW_COUNTERS = 1 << 14
"""Counters of kernels/gemm_hopper.hip: four for each set of blocks that share rows, 0 between launches."""


@dataclass(frozen=True, slots=True)
class _Use:
    """One use of a layer: result = after(activation(a @ weights + biases + residual)), and the same rounded;
    one of the two may be missing."""

    layer: Linear
    product: Product
    a: Matrix
    result: Matrix | None
    rounded: Matrix | None
    residual: Matrix | None
    after: After

    @property
    def ldo(self) -> int:
        """Numbers from row to row of the results."""
        return self.layer.padded_width if self.result is None else self.result.stride

    @property
    def rounds_alone(self) -> bool:
        """Whether a kernel that has a part of a row can round it. The scale of int8 takes all of the row."""
        return self.rounded is not None and isinstance(self.rounded.inputs, E4m3Inputs)


def linear(
    b: ProgramBuilder,
    layer: Linear,
    a: Matrix,
    out: str,
    *,
    residual: Matrix | None = None,
    after: After | None = None,
    rounded: RoundedInputs | None = None,
    keep: bool = True,
    leave_norm: bool = False,
) -> Matrix:
    """activation(a @ weights + biases + residual), then `after`, into a matrix `out` of rows like a's.

    rounded: of the layers that take it; it is left rounded for them, too, or, if not `keep`, only so.
    leave_norm: the norm that is `after` is left to those who read the result (left_norms.py). Raises
    PlanError if the layer does not take rows of a's width, or there is a norm left that cannot be applied.
    """
    after = after or After()
    result = b.matrix(out, a.rows, layer.width) if keep or rounded is None else None
    pairs = None if rounded is None else b.rounded(out, a.rows, layer.width, rounded)
    a = rounded_inputs(layer, a)
    product = product_of(layer, a, after, residual=residual is not None)
    use = _Use(layer, product, a, result, pairs, residual, after)
    if leave_norm:
        return _leaving_norm(b, use, b.choose_whole(without_norm(product)))
    normed = a.norm is not None or (residual is not None and residual.norm is not None)
    choice = b.choose_whole(product) if normed else b.choose(product)
    if choice.hopper is not None:
        _by_hopper_kernel(b, use, choice.hopper)
    elif choice.tile is None:
        _by_library(b, use, choice)
    elif choice.splits > 1:
        _split(b, use, choice, choice.tile)
    else:
        _whole(b, use, choice, choice.tile)
    if result is None:
        assert pairs is not None
        return pairs
    return result if pairs is None else replace(result, rounded=pairs)


def rounded_inputs(layer: Linear, a: Matrix) -> Matrix:
    """The inputs as the layer takes them, for most layers as they are. Raises PlanError where it takes them
    rounded and there are none that are so rounded, or the other way round."""
    wanted = None if layer.eight is None else layer.eight.rounding
    inputs = a if a.inputs is not None or wanted is None or a.rounded is None else a.rounded
    if inputs.inputs != wanted:
        raise PlanError(f"{layer.name}: takes inputs rounded by {wanted}, but gets them by {inputs.inputs}")
    if layer.norm is not inputs.left_norm:
        raise PlanError(f"{layer.name}: takes inputs with another norm left to it than it gets")
    return inputs


def product_of(layer: Linear, a: Matrix, after: After, *, residual: bool) -> Product:
    """The product of a layer and its inputs. Raises PlanError where they do not fit."""
    n, k = layer.weights.shape
    expected = 9 * a.stride if layer.convolution else a.width if a.segment else a.stride
    if k != expected:
        raise PlanError(f"{layer.name}: takes {k} inputs, but gets {expected}")
    return Product(
        m=a.rows,
        n=n,
        k=k,
        activation=layer.activation,
        residual=residual,
        convolution=layer.convolution,
        bias_by_square=layer.bias_by_square,
        bias=layer.biases is not None,
        followed=bool(after),
        segment=a.segment,
        weight_bits=0 if layer.packed is None else layer.packed.format.bits,
        normalised=after.norm is not None and after.gating is None,
        form=layer.form,
    )


def without_norm(product: Product) -> Product:
    """A product whose norm is left to others."""
    return replace(product, followed=False, normalised=False)


# -- the general kernel --------------------------------------------------------------------------------------


def _whole(b: ProgramBuilder, use: _Use, choice: Choice, tile: Tile) -> None:
    """The product by kernels/gemm.hip, which finishes its sums itself; then `after`, if there is any."""
    epilogue = _own_epilogue(b, use)
    if not use.after and use.result is None and use.rounds_alone:
        assert use.rounded is not None
        _gemm(b, use, choice, tile, epilogue, use.rounded.buffer, use.rounded)
        return
    out = use.result
    later = bool(use.after) or use.rounded is not None
    if later or out is None:
        out = b.matrix(b.of_branch("product"), use.a.rows, use.layer.width)
    _gemm(b, use, choice, tile, epilogue, out.buffer)
    if later:
        finish_rows(b, use.layer.name, out, use.result, Epilogue(after=use.after), use.rounded)


def _leaving_norm(b: ProgramBuilder, use: _Use, choice: Choice) -> Matrix:
    """The product by kernels/gemm.hip, which leaves the rows as they are and their sums beside them."""
    norm, result, tile = use.after.norm, use.result, choice.tile
    assert norm is not None and result is not None and tile is not None
    read = None if use.residual is None or use.residual.norm is None else use.residual.norm.sums.name
    parts = use.product.n // tile.part_columns
    sums = b.work("row_sums0" if read != "row_sums0" else "row_sums1", 8 * parts * result.rows)
    left = LeftNorm(norm, use.layer.name, sums, parts)
    _gemm(b, use, choice, tile, _own_epilogue(b, use), result.buffer, leaves=left)
    return replace(result, norm=left)


def _own_epilogue(b: ProgramBuilder, use: _Use) -> Epilogue:
    """What the kernel itself does to the sums. The betas of a norm that was left to the residual's reader are
    among the biases."""
    layer, residual = use.layer, use.residual
    bias = _biases(b, layer)
    if residual is not None and residual.norm is not None:
        norm, own = residual.norm.norm, layer.biases

        def with_betas() -> FloatArray:
            betas = pack.vector(norm.betas, b.precision)
            return betas if own is None else own + betas

        bias = b.weight(f"{layer.name}.biases_and_betas", with_betas)
    return Epilogue(bias, _address(residual), layer.activation)


def _split(b: ProgramBuilder, use: _Use, choice: Choice, tile: Tile) -> None:
    """The product by kernels/gemm.hip, which leaves partial sums along k; a pass over the rows adds them up
    and does the rest."""
    size = 4 * use.a.rows * use.product.n * choice.splits
    partials = Partials(b.work(b.of_branch("partials"), size), choice.splits)
    layer = use.layer
    epilogue = Epilogue(_biases(b, layer), _address(use.residual), layer.activation, use.after)
    _gemm(b, use, choice, tile, Epilogue(), partials)
    finish_rows(b, layer.name, partials, use.result, epilogue, use.rounded)


def _gemm(
    b: ProgramBuilder,
    use: _Use,
    choice: Choice,
    tile: Tile,
    epilogue: Epilogue,
    out: Buffer | Partials,
    rounded: Matrix | None = None,
    leaves: LeftNorm | None = None,
) -> None:
    """One launch of kernels/gemm.hip. epilogue: what it does itself. rounded: what `out` is, if it is
    rounded. leaves: the norm that it leaves to the readers of `out`."""
    layer, product, a = use.layer, use.product, use.a
    of_residual = None if use.residual is None else use.residual.norm
    norm = a.norm or of_residual
    split = isinstance(out, Partials)
    packed = layer.packed if choice.packed else None
    bits = 0 if packed is None else packed.format.bits
    steps = -(-product.k // tile.block_k)
    weights, scales = _fragments(b, layer) if tile.direct else _weights(b, layer, packed)
    b.launch(
        "gemm",
        gemm_constants(
            tile,
            split=split,
            activation=epilogue.activation,
            convolution=layer.convolution,
            segment=a.segment,
            bits=bits,
            form=layer.form,
            rounded=b.format_code(rounded),
            residual=epilogue.residual is not None,
            bias=epilogue.bias is not None and not layer.bias_by_square,
            bias_by_square=layer.bias_by_square,
            whole_steps=whole_steps(product, tile, b.target),
            input_parts=0 if a.norm is None else a.norm.parts,
            residual_parts=0 if of_residual is None else of_residual.parts,
            row_sums=leaves is not None,
        ),
        Geometry(
            (-(-product.n // tile.block_n), -(-a.rows // tile.block_m), choice.splits),
            tile.warps * b.target.wave,
            tile.shared_bytes(b.target, b.precision, bits, normed=norm is not None),
        ),
        (
            a.buffer,
            weights,
            scales,
            epilogue.bias,
            epilogue.residual,
            None if isinstance(out, Partials) else out,
            out.buffer if isinstance(out, Partials) else None,
            a.rows,
            product.n,
            product.k,
            a.stride,
            use.ldo,
            a.offset if a.segment else a.stride,
            -(-steps // choice.splits),
            *sum_scales(b, layer),
            b.round_scale(rounded),
            a.scales,
            column_scales(b, layer),
            *_norm_arguments(b, layer, a.norm, of_residual),
            None if leaves is None else leaves.sums,
        ),
        layer.name,
    )


def _norm_arguments(
    b: ProgramBuilder, layer: Linear, of_inputs: LeftNorm | None, of_residual: LeftNorm | None
) -> tuple[Buffer | None, Buffer | None, float, float]:
    """What applies a norm that was left to a product: the rows' sums, what there is of each column, one
    divided by the elements that count, and epsilon."""
    left = of_inputs or of_residual
    if left is None:
        return None, None, 0.0, 0.0
    columns, _ = norm_vectors(b, left.name, left.norm)
    if of_inputs is not None:
        columns = b.weight(f"{layer.name}.column_sums", lambda: pack.sums_of_rows(layer.weights, b.precision))
    return left.sums, columns, 1.0 / len(left.norm.gammas), float(left.norm.epsilon)


def gemm_constants(
    tile: Tile,
    *,
    split: bool = False,
    activation: Activation = Activation.NONE,
    convolution: bool = False,
    segment: int = 0,
    bits: int = 0,
    form: EightBits | None = None,
    rounded: int = 0,
    residual: bool = False,
    bias: bool = False,
    bias_by_square: bool = False,
    whole_steps: bool = False,
    input_parts: int = 0,
    residual_parts: int = 0,
    row_sums: bool = False,
) -> dict[str, int]:
    """What kernels/gemm.hip is compiled for. bits: of a weight, where codes are read, else 0.
    form: of the operands; rounded: the number of the result's. whole_steps: as `whole_steps` says.
    input_parts, residual_parts: of the rows' sums, where a norm was left to it. row_sums: it leaves one."""
    return {
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "WARPS_M": tile.warps_m,
        "WARPS_N": tile.warps_n,
        "WARPS_K": tile.warps_k,
        "STAGES": tile.stages,
        "SPLIT": int(split),
        "ACTIVATION": ACTIVATION_CODES[activation],
        "CONVOLUTION": int(convolution),
        "SEGMENT": segment,
        "PACKED": bits,
        "FORMAT": FORMAT_CODES[form],
        "ROUND": rounded,
        "RESIDUAL": int(residual),
        "BIAS": int(bias),
        "BIAS_BY_SQUARE": int(bias_by_square),
        "WHOLE_STEPS": int(whole_steps),
        "DIRECT": int(tile.direct),
        "INPUT_NORM": int(input_parts > 0),
        "RESIDUAL_NORM": int(residual_parts > 0),
        "NORM_PARTS": input_parts or residual_parts,
        "ROW_SUMS": int(row_sums),
    }


def whole_steps(product: Product, tile: Tile, target: Target) -> bool:
    """Whether kernels/gemm.hip need not look where k ends, nor work out anew at every step where a chunk
    lies. Where copies are asynchronous it always does."""
    irregular = product.convolution or product.segment > 0
    return target.name.startswith("gfx") and not irregular and product.k % tile.block_k == 0


def _weights(b: ProgramBuilder, layer: Linear, packed: Packed | None) -> tuple[Buffer, Buffer | None]:
    """A layer's weights, or their codes and scales."""
    if packed is None:
        return b.weight(f"{layer.name}.weights", lambda: layer.weights), None
    codes = b.weight(f"{layer.name}.codes", lambda: packed.codes)
    return codes, b.weight(f"{layer.name}.scales", lambda: packed.scales)


def _fragments(b: ProgramBuilder, layer: Linear) -> tuple[Buffer, None]:
    """A layer's weights in the order of MFMA's lanes."""
    return b.weight(f"{layer.name}.fragments", lambda: pack.fragments(layer.weights)), None


def sum_scales(b: ProgramBuilder, layer: Linear) -> tuple[float, float, int]:
    """In e4m3, of all sums, of those of the first columns, and how many these are."""
    if not isinstance(layer.eight, E4m3Scales):
        return 1.0, 1.0, 0
    return *layer.eight.of(b.target), layer.eight.first_columns


def column_scales(b: ProgramBuilder, layer: Linear) -> Buffer | None:
    """In int8, of the sums of each column."""
    eight = layer.eight
    if not isinstance(eight, Int8Scales):
        return None
    return b.weight(f"{layer.name}.column_scales", lambda: eight.columns)


def _biases(b: ProgramBuilder, layer: Linear) -> Buffer | None:
    biases = layer.biases
    return None if biases is None else b.weight(f"{layer.name}.biases", lambda: biases)


def _address(matrix: Matrix | None) -> Buffer | None:
    return None if matrix is None else matrix.buffer


# -- the kernel for Hopper -----------------------------------------------------------------------------------


def _by_hopper_kernel(b: ProgramBuilder, use: _Use, tile: HopperTile) -> None:
    """The product by kernels/gemm_hopper.hip, which can also do the layer norm that follows."""
    layer, product, a = use.layer, use.product, use.a
    norm = use.after.norm if tile.normalise else None
    later = After() if tile.normalise else use.after
    result, rounded = use.result, use.rounded if use.rounds_alone else None
    unrounded = rounded is not use.rounded
    if later or (result is None and unrounded):
        result, rounded = b.matrix(b.of_branch("product"), a.rows, layer.width), None
    # Blocks that share rows hand each other the sums of 64 rows: two of 8 bytes each, for two turns.
    row_groups = 2 * tile.blocks(a.rows, product.n) // tile.row_blocks if tile.row_blocks else 0
    weights, _ = _weights(b, layer, None)
    b.launch(
        "gemm_hopper",
        {
            "BLOCK_N": tile.block_n,
            "STAGES": tile.stages,
            "CLUSTER_M": tile.cluster_m,
            "CLUSTER_N": tile.cluster_n,
            "ACTIVATION": ACTIVATION_CODES[layer.activation],
            "RESIDUAL": int(use.residual is not None),
            "BIAS": int(layer.biases is not None),
            "NORMALISE": int(norm is not None),
            "ROW_BLOCKS": tile.row_blocks,
            "FORMAT": FORMAT_CODES[layer.form],
            "KEEP": int(result is not None),
            "ROUND": b.format_code(rounded),
        },
        Geometry(
            (tile.blocks(a.rows, product.n), 1, 1),
            hopper.THREADS,
            tile.shared_bytes,
            tile.cluster,
            tile.row_blocks or 1,
        ),
        (
            rows_map(a.buffer, a.rows, product.k, a.stride, b.precision),
            weights_map(weights, product.n, product.k, tile.block_n, b.precision),
            _biases(b, layer),
            _address(use.residual),
            *norm_vectors(b, layer.name, norm),
            _address(result),
            a.rows,
            product.n,
            product.k,
            use.ldo,
            0.0 if norm is None else float(norm.epsilon),
            *sum_scales(b, layer),
            _address(rounded),
            b.round_scale(rounded),
            b.work("row_parts", row_groups * 2 * 2 * tile.row_blocks * 64 * 8) if row_groups else None,
            b.weight("row_counters", lambda: np.zeros(ROW_COUNTERS, np.uint32)) if row_groups else None,
            a.scales,
            column_scales(b, layer),
        ),
        layer.name,
    )
    if later or unrounded:
        assert result is not None
        out = None if result is use.result else use.result
        finish_rows(b, layer.name, result, out, Epilogue(after=later), use.rounded)


# -- a vendor's library --------------------------------------------------------------------------------------


def _by_library(b: ProgramBuilder, use: _Use, choice: Choice) -> None:
    """The product by a vendor's library; a pass over the rows does what the library does not."""
    layer, a, residual = use.layer, use.a, use.residual
    own = library_product(use.product, choice.library, fused=choice.fused, lda=a.stride, ldo=use.ldo)
    biases = layer.biases
    bias = None
    if biases is not None and own.bias:
        bias = b.weight(f"{layer.name}.library_biases", lambda: pack.stored(biases, b.precision))
    rest = Epilogue(
        bias=None if own.bias else _biases(b, layer),
        residual=None if own.residual else _address(residual),
        activation=Activation.NONE if own.activation is layer.activation else layer.activation,
        after=use.after,
    )
    out = use.result
    later = bool(rest) or use.rounded is not None
    if later or out is None:
        out = b.matrix(b.of_branch("product"), a.rows, layer.width)
    b.program.steps.append(
        LibraryStep(
            choice.library,
            own,
            choice.algorithm,
            a.buffer,
            _weights(b, layer, None)[0],
            bias,
            _address(residual) if own.residual else None,
            out.buffer,
            layer.name,
            b.aside,
        )
    )
    if later:
        finish_rows(b, layer.name, out, use.result, rest, use.rounded)

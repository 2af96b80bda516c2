"""Launches of kernels/gemm.hip, the general kernel for matrix products: whole, split along k, or with the
norm behind it left to the readers of the rows."""

from __future__ import annotations

from dataclasses import replace

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Target
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.builder import ACTIVATION_CODES, FORMAT_CODES, Geometry, ProgramBuilder
from evaluator.gpu.plan.epilogue import Epilogue, Partials, finish_rows, norm_vectors
from evaluator.gpu.plan.linear_layer import Linear
from evaluator.gpu.plan.product_use import Use, address, biases_of, column_scales, sum_scales, weights_of
from evaluator.gpu.plan.program import Buffer, LeftNorm, Matrix
from evaluator.gpu.plan.tiles import Choice, Tile
from evaluator.network.eight_bits import EightBits
from evaluator.network.spec import Activation, FloatArray


def whole(b: ProgramBuilder, use: Use, choice: Choice, tile: Tile) -> None:
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


def leaving_norm(b: ProgramBuilder, use: Use, choice: Choice) -> Matrix:
    """The product by kernels/gemm.hip, which leaves the rows as they are and their sums beside them."""
    norm, result, tile = use.after.norm, use.result, choice.tile
    assert norm is not None and result is not None and tile is not None
    read = None if use.residual is None or use.residual.norm is None else use.residual.norm.sums.name
    parts = use.product.n // tile.part_columns
    sums = b.work("row_sums0" if read != "row_sums0" else "row_sums1", 8 * parts * result.rows)
    left = LeftNorm(norm, use.layer.name, sums, parts)
    _gemm(b, use, choice, tile, _own_epilogue(b, use), result.buffer, leaves=left)
    return replace(result, norm=left)


def _own_epilogue(b: ProgramBuilder, use: Use) -> Epilogue:
    """What the kernel itself does to the sums. The betas of a norm that was left to the residual's reader are
    among the biases."""
    layer, residual = use.layer, use.residual
    bias = biases_of(b, layer)
    if residual is not None and residual.norm is not None:
        norm, own = residual.norm.norm, layer.biases

        def with_betas() -> FloatArray:
            betas = pack.vector(norm.betas, b.precision)
            return betas if own is None else own + betas

        bias = b.weight(f"{layer.name}.biases_and_betas", with_betas)
    return Epilogue(bias, address(residual), layer.activation)


def split_along_k(b: ProgramBuilder, use: Use, choice: Choice, tile: Tile) -> None:
    """The product by kernels/gemm.hip, which leaves partial sums along k; a pass over the rows adds them up
    and does the rest."""
    size = 4 * use.a.rows * use.product.n * choice.splits
    partials = Partials(b.work(b.of_branch("partials"), size), choice.splits)
    layer = use.layer
    epilogue = Epilogue(biases_of(b, layer), address(use.residual), layer.activation, use.after)
    _gemm(b, use, choice, tile, Epilogue(), partials)
    finish_rows(b, layer.name, partials, use.result, epilogue, use.rounded)


def _gemm(
    b: ProgramBuilder,
    use: Use,
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
    weights, scales = _fragments(b, layer) if tile.direct else weights_of(b, layer, packed)
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


def _fragments(b: ProgramBuilder, layer: Linear) -> tuple[Buffer, None]:
    """A layer's weights in the order of MFMA's lanes."""
    return b.weight(f"{layer.name}.fragments", lambda: pack.fragments(layer.weights)), None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of kernels/gemm.hip, the general kernel for matrix products: whole, or split along k."""

from __future__ import annotations

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.target import Target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ACTIVATION_CODES, Geometry, ProgramBuilder
from evaluator.backends.gpu.plan.products.epilogue import Epilogue, Partials, finish_rows
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.products.product_use import (
    Use,
    address,
    biases_of,
    norm_arguments,
    own_epilogue,
    sum_scales,
    weights_of,
)
from evaluator.backends.gpu.plan.program import Buffer, LeftNorm, Matrix
from evaluator.backends.gpu.plan.tiles import Choice, Tile
from evaluator.network.spec import Activation


def whole(b: ProgramBuilder, use: Use, choice: Choice, tile: Tile) -> None:
    """Append the product by kernels/gemm.hip with its epilogue; then `after`, if any."""
    epilogue = own_epilogue(b, use)
    if not use.after and use.result is None and use.rounded is not None:
        assert use.rounded is not None
        gemm_launch(b, use, choice, tile, epilogue, use.rounded.buffer, use.rounded)
        return
    out = use.result
    later = bool(use.after) or use.rounded is not None
    if later or out is None:
        out = b.matrix(b.of_branch("product"), use.a.rows, use.layer.width)
    gemm_launch(b, use, choice, tile, epilogue, out.buffer)
    if later:
        finish_rows(b, use.layer.name, out, use.result, Epilogue(after=use.after), use.rounded)


def split_along_k(b: ProgramBuilder, use: Use, choice: Choice, tile: Tile) -> None:
    """Append the product by kernels/gemm.hip with partial sums along k; a pass over the rows adds them up and
    does the rest."""
    size = 4 * use.a.rows * use.product.n * choice.splits
    partials = Partials(b.work(b.of_branch("partials"), size), choice.splits)
    layer = use.layer
    epilogue = Epilogue(biases_of(b, layer), address(use.residual), layer.activation, use.after)
    gemm_launch(b, use, choice, tile, Epilogue(), partials)
    finish_rows(b, layer.name, partials, use.result, epilogue, use.rounded)


def gemm_launch(
    b: ProgramBuilder,
    use: Use,
    choice: Choice,
    tile: Tile,
    epilogue: Epilogue,
    out: Buffer | Partials,
    rounded: Matrix | None = None,
    leaves: LeftNorm | None = None,
) -> None:
    """Append one launch of kernels/gemm.hip. epilogue: done by the kernel. rounded: `out` as a matrix, if it
    is rounded. leaves: the norm that is left to the readers of `out`."""
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
            e4m3=layer.e4m3,
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
            *norm_arguments(b, layer, a.norm, of_residual),
            None if leaves is None else leaves.sums,
        ),
        layer.name,
    )


def gemm_constants(
    tile: Tile,
    *,
    split: bool = False,
    activation: Activation = Activation.NONE,
    convolution: bool = False,
    segment: int = 0,
    bits: int = 0,
    e4m3: bool = False,
    rounded: int = 0,
    residual: bool = False,
    bias: bool = False,
    bias_by_square: bool = False,
    whole_steps: bool = False,
    input_parts: int = 0,
    residual_parts: int = 0,
    row_sums: bool = False,
) -> dict[str, int]:
    """Return the constants of kernels/gemm.hip. bits: of a weight, if codes are read; else 0. e4m3: the
    operands are pairs of e4m3 numbers. rounded: 1 if the result is rounded. whole_steps: see `whole_steps`.
    input_parts, residual_parts: parts of the rows' sums, if a norm was left to it. row_sums: it leaves a
    norm."""
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
        "FORMAT": int(e4m3),
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
    """Return True if kernels/gemm.hip need not check the end of k, nor recompute the address of a chunk at
    every step. With asynchronous copies it always does."""
    irregular = product.convolution or product.segment > 0
    return target.name.startswith("gfx") and not irregular and product.k % tile.block_k == 0


def _fragments(b: ProgramBuilder, layer: Linear) -> tuple[Buffer, None]:
    """Return a layer's weights in the order of MFMA's lanes."""
    return b.weight(f"{layer.name}.fragments", lambda: pack.fragments(layer.weights)), None

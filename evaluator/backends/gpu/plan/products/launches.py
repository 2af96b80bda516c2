# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products with their epilogues as launches.

`linear` asks the builder's chooser how to compute a product. One function per answer appends it: with the
general kernel (gemm.py: whole or split along k, with weights or codes), the Hopper kernel (gemm_hopper.py),
or a vendor's library (below). A pass over the rows (epilogue.py) does the rest; a norm may be left to the
readers (left_norms.py).
"""

from __future__ import annotations

from dataclasses import replace

from evaluator.backends.gpu.blas.library import library_product
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.products.epilogue import After, Epilogue, finish_rows
from evaluator.backends.gpu.plan.products.gemm import gemm_launch, split_along_k, whole
from evaluator.backends.gpu.plan.products.gemm_hopper import by_hopper_kernel
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.products.product_use import Use, address, biases_of, own_epilogue, weights_of
from evaluator.backends.gpu.plan.program import LeftNorm, LibraryStep, Matrix, PlanError
from evaluator.backends.gpu.plan.tiles import Choice
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import Activation


def linear(
    b: ProgramBuilder,
    layer: Linear,
    a: Matrix,
    out: str,
    *,
    residual: Matrix | None = None,
    after: After | None = None,
    rounded: E4m3Inputs | None = None,
    keep: bool = True,
    leave_norm: bool = False,
) -> Matrix:
    """Append activation(a @ weights + biases + residual), then `after`. Returns the matrix `out`.

    rounded: inputs of the layers that read the result, which is also written rounded for them, or only so if
    not `keep`. leave_norm: the norm of `after` is left to the readers of the result (left_norms.py). Raises
    PlanError if a's width does not fit the layer, or if a left norm cannot be applied.
    """
    after = after or After()
    result = b.matrix(out, a.rows, layer.width) if keep or rounded is None else None
    pairs = None if rounded is None else b.rounded(out, a.rows, layer.width, rounded)
    a = rounded_inputs(layer, a)
    product = product_of(layer, a, after, residual=residual is not None)
    use = Use(layer, product, a, result, pairs, residual, after)
    if leave_norm:
        return _leaving_norm(b, use, b.choose_normed(leaving(product)))
    normed = a.norm is not None or (residual is not None and residual.norm is not None)
    choice = b.choose_normed(product) if normed else b.choose(product)
    if choice.hopper is not None:
        by_hopper_kernel(b, use, choice.hopper)
    elif choice.tile is None:
        _by_library(b, use, choice)
    elif choice.splits > 1:
        split_along_k(b, use, choice, choice.tile)
    else:
        whole(b, use, choice, choice.tile)
    if result is None:
        assert pairs is not None
        return pairs
    return result if pairs is None else replace(result, rounded=pairs)


def _leaving_norm(b: ProgramBuilder, use: Use, choice: Choice) -> Matrix:
    """Append the product by a kernel that leaves the rows unnormalised, with their sums."""
    norm, result = use.after.norm, use.result
    assert norm is not None and result is not None
    read = None if use.residual is None or use.residual.norm is None else use.residual.norm.sums.name
    assert choice.tile is not None
    parts = use.product.n // choice.tile.part_columns
    sums = b.work("row_sums0" if read != "row_sums0" else "row_sums1", 8 * parts * result.rows)
    left = LeftNorm(norm, use.layer.name, sums, parts)
    gemm_launch(b, use, choice, choice.tile, own_epilogue(b, use), result.buffer, leaves=left)
    return replace(result, norm=left)


def rounded_inputs(layer: Linear, a: Matrix) -> Matrix:
    """Return the inputs in the layer's form, usually unchanged. Raises PlanError if the layer takes rounded
    inputs and there are none with that rounding, or vice versa."""
    wanted = None if layer.eight is None else layer.eight.rounding
    inputs = a if a.inputs is not None or wanted is None or a.rounded is None else a.rounded
    if inputs.inputs != wanted:
        raise PlanError(f"{layer.name}: takes inputs rounded by {wanted}, but gets them by {inputs.inputs}")
    if layer.norm is not inputs.left_norm:
        raise PlanError(f"{layer.name}: takes inputs with another norm left to it than it gets")
    return inputs


def product_of(layer: Linear, a: Matrix, after: After, *, residual: bool) -> Product:
    """Return the product of a layer and its inputs. Raises PlanError if they do not fit."""
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
        e4m3=layer.e4m3,
    )


def leaving(product: Product) -> Product:
    """Return the product that determines the choice for one whose norm is left to others."""
    return replace(product, followed=False, normalised=False)


def _by_library(b: ProgramBuilder, use: Use, choice: Choice) -> None:
    """Append the product by a vendor's library; a pass over the rows does the rest."""
    layer, a, residual = use.layer, use.a, use.residual
    own = library_product(use.product, choice.library, fused=choice.fused, lda=a.stride, ldo=use.ldo)
    biases = layer.biases
    bias = None
    if biases is not None and own.bias:
        bias = b.weight(f"{layer.name}.library_biases", lambda: pack.stored(biases, b.precision))
    rest = Epilogue(
        bias=None if own.bias else biases_of(b, layer),
        residual=None if own.residual else address(residual),
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
            weights_of(b, layer, None)[0],
            bias,
            address(residual) if own.residual else None,
            out.buffer,
            layer.name,
            b.aside,
        )
    )
    if later:
        finish_rows(b, layer.name, out, use.result, rest, use.rounded)

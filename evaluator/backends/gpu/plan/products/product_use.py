# SPDX-License-Identifier: GPL-3.0-or-later
"""One use of a layer: operands, epilogue, and the buffers common to all ways of computing it."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.products.epilogue import After, Epilogue, norm_vectors
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.program import Buffer, LeftNorm, Matrix
from evaluator.backends.gpu.plan.quantised import Packed
from evaluator.network.spec import FloatArray


@dataclass(frozen=True, slots=True)
class Use:
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
        """Distance between rows of the results, in numbers."""
        return self.layer.padded_width if self.result is None else self.result.stride


def weights_of(b: ProgramBuilder, layer: Linear, packed: Packed | None) -> tuple[Buffer, Buffer | None]:
    """Return a layer's weights, or their codes and scales."""
    if packed is None:
        return b.weight(f"{layer.name}.weights", lambda: layer.weights), None
    codes = b.weight(f"{layer.name}.codes", lambda: packed.codes)
    return codes, b.weight(f"{layer.name}.scales", lambda: packed.scales)


def sum_scales(b: ProgramBuilder, layer: Linear) -> tuple[float, float, int]:
    """Return the factors in e4m3 of all sums and of those of the first columns, and how many columns these
    are."""
    if layer.eight is None:
        return 1.0, 1.0, 0
    return *layer.eight.of(b.target), layer.eight.first_columns


def biases_of(b: ProgramBuilder, layer: Linear) -> Buffer | None:
    biases = layer.biases
    return None if biases is None else b.weight(f"{layer.name}.biases", lambda: biases)


def address(matrix: Matrix | None) -> Buffer | None:
    return None if matrix is None else matrix.buffer


def own_epilogue(b: ProgramBuilder, use: Use) -> Epilogue:
    """Return the kernel's own epilogue. The betas of a norm left to the residual's reader are part of the
    biases."""
    layer, residual = use.layer, use.residual
    bias = biases_of(b, layer)
    if residual is not None and residual.norm is not None:
        norm, own = residual.norm.norm, layer.biases

        def with_betas() -> FloatArray:
            betas = pack.vector(norm.betas, b.precision)
            return betas if own is None else own + betas

        bias = b.weight(f"{layer.name}.biases_and_betas", with_betas)
    return Epilogue(bias, address(residual), layer.activation)


def norm_arguments(
    b: ProgramBuilder, layer: Linear, of_inputs: LeftNorm | None, of_residual: LeftNorm | None
) -> tuple[Buffer | None, Buffer | None, float, float]:
    """Return the arguments for a norm that was left to a product: the rows' sums, the column vectors, one
    divided by the number of elements that count, and epsilon."""
    left = of_inputs or of_residual
    if left is None:
        return None, None, 0.0, 0.0
    columns, _ = norm_vectors(b, left.name, left.norm)
    if of_inputs is not None:
        columns = b.weight(f"{layer.name}.column_sums", lambda: pack.sums_of_rows(layer.weights, b.precision))
    return left.sums, columns, 1.0 / len(left.norm.gammas), float(left.norm.epsilon)

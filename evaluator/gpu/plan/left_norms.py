"""Layer norms that are left to the products which read their rows: kernels/row_norms.h says how.

A pass of its own reads and writes every row for a norm. Without it, the product before leaves the rows' sums
beside the rows, the products that take the rows have the gammas in their weights, and the one whose residual
they are applies the norm where it adds them. That takes our own kernel, on AMD's matrix units: a library's
product knows nothing of it, and one that is split ends with a pass over the rows anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluator.gpu.blas.product import Product
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.epilogue import After
from evaluator.gpu.plan.products import Linear, product_of
from evaluator.gpu.plan.program import Matrix
from evaluator.network.spec import LayerNorm


@dataclass(frozen=True, slots=True)
class Use:
    """A product with a layer as it is where no norm is left to it. a: its inputs, or a matrix of their shape.
    norm: what follows the product and its residual; None for one with neither."""

    layer: Linear
    a: Matrix
    norm: LayerNorm | None = None

    @property
    def product(self) -> Product:
        """Raises PlanError where layer and inputs do not fit."""
        return product_of(self.layer, self.a, After(self.norm), residual=self.norm is not None)


def can_be_left(b: ProgramBuilder, maker: Use, readers: Callable[[], Sequence[Use]]) -> bool:
    """Whether the norm after a product can be left to all that read its result. readers: those, asked for
    only where it might be."""
    if not b.leaves_norms:
        return False
    tile = b.choose(maker.product).tile
    if tile is None or maker.layer.padded_width % tile.block_n:
        return False
    # All are asked for, so that what is measured does not depend on what was chosen.
    whole = [_is_whole(b, each) for each in (maker, *readers())]
    return all(whole)


def _is_whole(b: ProgramBuilder, use: Use) -> bool:
    """Whether our own kernel computes the product to its end."""
    if use.layer.eight is not None or use.layer.packed is not None:
        return False
    return b.choose(replace(use.product, bias=True)).whole  # betas become biases

# SPDX-License-Identifier: GPL-3.0-or-later
"""Layer norms that are left to the products which read their rows: kernels/row_norms.h says how.

A pass of its own reads and writes every row for a norm. Without it, the product before leaves the rows' sums
beside the rows, the products that take the rows have the gammas in their weights, and the one whose residual
they are applies the norm where it adds them. That takes our own kernels, on AMD's matrix units and, for some
hundred rows, on sm_90: a library's product knows nothing of it, and one that is split through memory ends
with a pass over the rows anyway. Where products were measured, what all of them take decides; a norm that is
applied or left costs a product so little that it is measured without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluator.gpu.blas.product import Product
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.products.epilogue import After
from evaluator.gpu.plan.products.launches import leaving, product_of
from evaluator.gpu.plan.products.linear_layer import Linear
from evaluator.gpu.plan.program import Matrix
from evaluator.gpu.plan.tiles import Measured, Measurements
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


def is_left(b: ProgramBuilder, maker: Use, readers: Callable[[], Sequence[Use]]) -> bool:
    """Whether the norm after a product is left to all that read its result. readers: those, asked for only
    where it might be."""
    if not b.leaves_norms:
        return False
    uses = [maker, *readers()]
    if any(use.layer.eight is not None or use.layer.packed is not None for use in uses):
        return False
    products = [use.product for use in uses]
    # The betas of inputs become biases.
    left = [leaving(b, products[0]), *(replace(product, bias=True) for product in products[1:])]
    if b.measurements is not None:
        pays = _pays(b, b.measurements, left, products)
    else:
        pays = all(b.takes_norms(b.choose(product)) for product in (*products, *left))
    if not pays:
        return False
    choice = b.choose_normed(left[0])
    # Every part of a row must be made of columns that are there.
    columns = choice.part_columns if choice.tile is None else choice.tile.block_n
    return maker.layer.padded_width % columns == 0


def _pays(
    b: ProgramBuilder, measurements: Measurements, left: Sequence[Product], products: Sequence[Product]
) -> bool:
    """Whether to leave a norm. left: the products if it is left; products: the same if it is not.

    On sm_90 kernels that take norms must exist, as the whole program is timed later. Elsewhere they must be
    faster together than the fastest ways without.
    """
    # Request both lists before deciding, so that the measurements do not change which products are requested.
    whole = _kept(b, measurements, left)
    others = [measurements(product) for product in products]
    if not all(whole) or b.target.name == "sm_90":
        return all(whole)
    return sum(found[0].microseconds for found in whole) < sum(found[0].microseconds for found in others)


def _kept(b: ProgramBuilder, measurements: Measurements, products: Sequence[Product]) -> list[list[Measured]]:
    """What was measured of kernels that take norms, product by product."""
    return [[each for each in measurements(product) if b.takes_norms(each.choice)] for product in products]

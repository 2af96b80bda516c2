# SPDX-License-Identifier: GPL-3.0-or-later
"""Layer norms left to the products that read the rows; kernels/row_norms.h describes the method.

A separate norm pass reads and writes every row. Without it, the product before writes the rows' sums, too.
The products that read the rows have the gammas in their weights. A product with the rows as residual applies
the norm when it adds them. This needs our own kernel on AMD's matrix units. Libraries do not support it, and
a product split through memory ends with a pass over the rows anyway. If products were measured, the total
time decides. Applying or leaving a norm costs so little that it is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.launches import leaving, product_of
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.program import Matrix
from evaluator.backends.gpu.plan.tiles import Measured, Measurements
from evaluator.network.spec import LayerNorm


@dataclass(frozen=True, slots=True)
class NormUse:
    """A layer's product as it is without left norms. a: its inputs, or a matrix of their shape. norm: norm
    after the product and its residual; None without both."""

    layer: Linear
    a: Matrix
    norm: LayerNorm | None = None

    @property
    def product(self) -> Product:
        """Return the product. Raises PlanError if layer and inputs do not fit."""
        return product_of(self.layer, self.a, After(self.norm), residual=self.norm is not None)


def is_left(b: ProgramBuilder, maker: NormUse, readers: Callable[[], Sequence[NormUse]]) -> bool:
    """Return True if the norm after a product is left to all readers of its result. readers: returns them;
    called only if necessary."""
    if not b.leaves_norms:
        return False
    uses = [maker, *readers()]
    if any(use.layer.eight is not None or use.layer.packed is not None for use in uses):
        return False
    products = [use.product for use in uses]
    # The betas of the inputs become biases.
    left = [leaving(products[0]), *(replace(product, bias=True) for product in products[1:])]
    if b.measurements is not None:
        pays = _pays(b.measurements, left, products)
    else:
        pays = all(b.choose(product).whole for product in (*products, *left))
    if not pays:
        return False
    choice = b.choose_normed(left[0])
    assert choice.tile is not None
    # Each part of a row must consist of existing columns.
    return maker.layer.padded_width % choice.tile.block_n == 0


def _pays(measurements: Measurements, left: Sequence[Product], products: Sequence[Product]) -> bool:
    """Return True if the kernels that leave and take a norm are faster together than the fastest ways
    without. left: the products if it is left. products: the same if it is not."""
    # Request both lists before deciding, so that the measurements do not change which products are requested.
    whole = [[each for each in measurements(product) if each.choice.whole] for product in left]
    others = [measurements(product) for product in products]
    return all(whole) and _fastest(whole) < _fastest(others)


def _fastest(found: Sequence[Sequence[Measured]]) -> float:
    """Return the microseconds of the fastest of each together."""
    return sum(measured[0].microseconds for measured in found)

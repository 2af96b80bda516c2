"""Layer norms that are left to the products which read their rows: kernels/row_norms.h says how.

A pass of its own reads and writes every row for a norm. Without it, the product before leaves the rows' sums
beside the rows, the products that take the rows have the gammas in their weights, and the one whose residual
they are applies the norm where it adds them. That takes our own kernel, on AMD's matrix units: a library's
product knows nothing of it, and one that is split ends with a pass over the rows anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.epilogue import After
from evaluator.gpu.plan.products import Linear, product_of
from evaluator.gpu.plan.program import Matrix


@dataclass(frozen=True, slots=True)
class Use:
    """A product with a layer as it is without a norm left to it. a: its inputs, or a matrix of their shape;
    residual: whether it has one."""

    layer: Linear
    a: Matrix
    residual: bool = False
    after: After = After()


def can_be_left(b: ProgramBuilder, maker: Use, readers: Callable[[], Sequence[Use]]) -> bool:
    """Whether the norm after a product can be left to all that read its result. readers: those, asked for
    only where it might be."""
    after, layer = maker.after, maker.layer
    if not b.leaves_norms or after.norm is None or after.gating is not None or after.parts != (0, 0):
        return False
    choice = b.choose(product_of(layer, maker.a, after, residual=maker.residual))
    if choice.tile is None or layer.padded_width % choice.tile.block_n:
        return False
    # All are asked for, so that what is measured does not depend on what was chosen.
    return all([_is_whole(b, each) for each in (maker, *readers())])


def _is_whole(b: ProgramBuilder, use: Use) -> bool:
    """Whether our own kernel computes the product to its end."""
    layer = use.layer
    if layer.eight is not None or layer.packed is not None:
        return False
    product = product_of(layer, use.a, use.after, residual=use.residual)
    return b.choose(replace(product, bias=True)).whole  # betas become biases

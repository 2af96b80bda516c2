# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix products and other kernels of a network's programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import KernelKey
from evaluator.backends.gpu.driver.target import Precision, Target
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.tiles import Choice, Measured, estimates

PRODUCT_KERNELS = ("gemm", "gemm_hopper", "rows")
"""Kernels of matrix products, depending on the choice."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Parts of a network's programs: products, and the kernels of everything else."""

    products: Collection[Product]
    kernels: Collection[tuple[KernelKey, int]] = ()


class MeasuringChooser(Protocol):
    """A Chooser that measures unknown products and caches the results (tuning.tune.Tuner)."""

    def expect(self, needs: Callable[[], Needs]) -> None:
        """Announce the coming calls of `choose`. needs: called if any of them must be measured."""

    def choose(self, product: Product) -> Choice:
        """Return the fastest choice for a product. Raises DeviceError if there is none, and LibraryGivenUp
        once if earlier answers no longer hold."""

    def measurements(self, product: Product) -> Sequence[Measured]:
        """Return all choices for a product, fastest first. Raises as `choose` does."""

    def save(self) -> None:
        """Cache the measurements for the next start."""


class Collector:
    """A Chooser that records the requested products.

    takes_norms: True if some kernels can take layer norms. With False the plan takes the other branch at each
    norm.
    """

    def __init__(
        self, target: Target, precision: Precision, multiprocessors: int, *, takes_norms: bool
    ) -> None:
        self.products: dict[Product, None] = {}
        self._of = (target, precision, multiprocessors)
        self._takes_norms = takes_norms

    def __call__(self, product: Product) -> Choice:
        self.products[product] = None
        return estimates(product, *self._of)[0].choice

    def measurements(self, product: Product) -> list[Measured]:
        """Return estimates instead of measurements."""
        self.products[product] = None
        found = estimates(product, *self._of)
        return [each for each in found if self._takes_norms or not each.choice.whole]


class _Unmade(dict[str, NDArray[Any]]):
    """Weight arrays that always count as made: a program's needs do not depend on their values."""

    def __contains__(self, name: object) -> bool:
        return True


def needs_of(plan: Plan, buckets: tuple[int, ...], multiprocessors: int) -> Needs:
    """Return the matrix products of all batch sizes, and all other kernels.

    The result holds for any measurements, because both branches of each decision are collected. Packs the
    plan's layers, which later programs share. Raises PlanError.
    """
    products: dict[Product, None] = {}
    kernels: dict[tuple[KernelKey, int], None] = {}
    for with_norms in (True, False):
        collector = Collector(plan.target, plan.precision, multiprocessors, takes_norms=with_norms)
        measurements = None if plan.measurements is None else collector.measurements
        # It shares the packed layers.
        collecting = replace(plan, choose=collector, measurements=measurements, weights=_Unmade())
        for size in buckets:
            for program in (collecting.program(size), *collecting.persistent_programs(size)):
                kernels |= {key: None for key in program.kernels() if key[0].file not in PRODUCT_KERNELS}
        products |= collector.products
    return Needs(tuple(products), tuple(kernels))

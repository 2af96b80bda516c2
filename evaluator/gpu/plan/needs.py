# SPDX-License-Identifier: GPL-3.0-or-later
"""What the programs of a network ask for: the matrix products to be chosen, and all other kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.tiles import Choice, Measured, estimates, takes_norms

PRODUCT_KERNELS = ("gemm", "gemm_cluster", "gemm_hopper", "rows")
"""What products become, as chosen."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a network's programs are made of: products, and the kernels of everything else."""

    products: Collection[Product]
    kernels: Collection[tuple[KernelKey, int]] = ()


class MeasuringChooser(Protocol):
    """A Chooser that measures what it does not know, and keeps it (tuning.tune.Tuner)."""

    def expect(self, needs: Callable[[], Needs]) -> None:
        """Say what `choose` is going to be asked for. needs: called if something of it must be measured."""

    def choose(self, product: Product) -> Choice:
        """The fastest way to compute a product. Raises DeviceError if there is none, and LibraryGivenUp once
        when earlier answers no longer hold."""

    def measurements(self, product: Product) -> Sequence[Measured]:
        """All that computes a product, the fastest first. Raises as `choose` does."""

    def save(self) -> None:
        """Keep what was measured for the next start."""


class Collector:
    """A Chooser that records which products it is asked for.

    takes_norms: whether some kernels can take layer norms. With False the plan takes the other branch at each
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
        """Estimates instead of measurements."""
        self.products[product] = None
        found = estimates(product, *self._of)
        return [each for each in found if self._takes_norms or not takes_norms(self._of[0], each.choice)]


class _Unmade(dict[str, NDArray[Any]]):
    """Arrays of weights that count as made: what a program needs does not depend on what is in them."""

    def __contains__(self, name: object) -> bool:
        return True


def needs_of(plan: Plan, buckets: tuple[int, ...], multiprocessors: int) -> Needs:
    """Return the matrix products of all batch sizes, and all other kernels.

    The result holds for any measurements, as both branches of each decision by measurements are collected.
    Packs the plan's layers, which later programs share. Raises PlanError.
    """
    products: dict[Product, None] = {}
    kernels: dict[tuple[KernelKey, int], None] = {}
    for with_norms in (True, False):
        collector = Collector(plan.target, plan.precision, multiprocessors, takes_norms=with_norms)
        measurements = None if plan.measurements is None else collector.measurements
        # Shares the packed layers.
        collecting = replace(plan, choose=collector, measurements=measurements, weights=_Unmade())
        for size in buckets:
            others = (*collecting.persistent_programs(size), *collecting.own_programs(size))
            for program in (collecting.program(size), *others):
                kernels |= {key: None for key in program.kernels() if key[0].file not in PRODUCT_KERNELS}
        products |= collector.products
    return Needs(tuple(products), tuple(kernels))

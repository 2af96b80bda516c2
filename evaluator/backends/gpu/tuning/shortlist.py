# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the candidates worth measuring for a product, from results at other batch sizes.

The fastest choice changes slowly with the number of rows. So only some batch sizes of a product are measured
with all candidates. Those between them are measured with the choices that were close to the best on either
side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.plan.tiles import Choice, Measured, Tile

_RATIO = 8
"""Maximum ratio of neighbouring sizes of a product that are measured in full, if the list has sizes between.
With T82 on an H100, 8 positions took 1.07 instead of 0.62 ms between full measurements at 1 and 264
(2026-11-27)."""

_NEAR, _BEST = 1.15, 4
"""Maximum time relative to the best of a neighbour, and maximum number, of the choices that are measured."""


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Candidates to measure. own: of our kernels. libraries: names."""

    own: tuple[Choice, ...]
    libraries: frozenset[str]


def family(product: Product) -> Product:
    """Return what a product has in common with itself at other batch sizes."""
    return replace(product, m=0)


def in_full(products: Iterable[Product]) -> set[Product]:
    """Return the products to measure first, with all candidates: the smallest and largest size, and sizes
    between them with neighbours up to _RATIO times as large."""
    families: dict[Product, list[Product]] = {}
    for product in products:
        families.setdefault(family(product), []).append(product)
    chosen: set[Product] = set()
    for members in families.values():
        members.sort(key=lambda product: product.m)
        last = members[0]
        chosen |= {last, members[-1]}
        for product, larger in pairwise(members):
            if larger.m > _RATIO * last.m:
                last = product
                chosen.add(product)
    return chosen


def neighbours(product: Product, known: Iterable[Product]) -> tuple[Product, Product] | None:
    """Return the next smaller and larger known size of a product; None unless both exist."""
    same = [each for each in known if family(each) == family(product) and each.m != product.m]
    below = [each for each in same if each.m < product.m]
    above = [each for each in same if each.m > product.m]
    if not below or not above:
        return None
    return max(below, key=lambda each: each.m), min(above, key=lambda each: each.m)


def shortlist(possible: Collection[Choice], found: Sequence[Sequence[Measured]]) -> Shortlist:
    """Return the possible own choices that were close to the best at either neighbour.

    A tile is returned with any split of sums between those that were close. The fastest own choice of each
    kernel family is always included: norms are left to whole ones even if a library is faster.

    found: the neighbours' results, fastest first.
    """
    near = [each.choice for results in found for each in (*_close(results), *_best_of_families(results))]
    splits: dict[tuple[Tile, bool], list[int]] = {}
    for choice in near:
        if choice.tile is not None:
            splits.setdefault((choice.tile, choice.packed), []).append(choice.splits)

    def is_near(choice: Choice) -> bool:
        if choice.tile is None:
            return choice in near
        of = splits.get((choice.tile, choice.packed), [])
        return bool(of) and min(of) <= choice.splits <= max(of)

    own = tuple(choice for choice in possible if is_near(choice))
    return Shortlist(own, frozenset(choice.library for choice in near if choice.library))


def _close(results: Sequence[Measured]) -> list[Measured]:
    return [each for each in results[:_BEST] if each.microseconds <= _NEAR * results[0].microseconds]


def _best_of_families(results: Sequence[Measured]) -> list[Measured]:
    """Return the fastest of each family of own kernels: general whole, general split, Hopper."""
    best: dict[tuple[bool, bool], Measured] = {}
    for each in results:
        choice = each.choice
        if not choice.library:
            best.setdefault((choice.whole, choice.hopper is not None), each)
    return list(best.values())

# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured for a network is all that its plan asks for, whatever the measurements say."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache

import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.plan.needs import _Unmade, needs_of
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.tiles import Choice, Measured, estimates
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import NetworkSpec

PROCESSORS = 132
SIZES = (2, 32)
OF_LIBRARY = Choice(None, library="cuBLASLt")
WITH_SMOLGEN = random_network(
    NetworkShape(256, layers=2, heads=8, ffn=512, smolgen=(32, 64, 64), policy_width=64)
)
TARGETS = (nvidia_target(9, 0), amd_target("gfx1100"), amd_target("gfx942"))
PLAIN = random_network(NetworkShape(256, layers=2, heads=8, ffn=512, policy_width=64))

estimated = cache(estimates)

Keep = Callable[[Product, Choice], bool]


def plan_of(network: NetworkSpec, target: Target, keep: Keep, asked: dict[Product, None]) -> Plan:
    """A plan by estimates, of which `keep` says which count as measured. asked: filled with its products."""

    def measurements(product: Product) -> list[Measured]:
        asked[product] = None
        of_library = [] if product.e4m3 or product.segment else [Measured(OF_LIBRARY, 5.0)]
        found = [*estimated(product, target, Precision.FP16, PROCESSORS), *of_library]
        kept = [each for each in found if keep(product, each.choice)]
        return sorted(kept or found[-1:], key=lambda each: each.microseconds)

    return Plan(
        network,
        target,
        Precision.FP16,
        lambda product: measurements(product)[0].choice,
        blocks=PROCESSORS,
        measurements=measurements,
    )


def asked_of(
    network: NetworkSpec, target: Target, keep: Keep, sizes: tuple[int, ...] = SIZES
) -> dict[Product, None]:
    """What the programs of all sizes ask for."""
    asked: dict[Product, None] = {}
    plan = replace(plan_of(network, target, keep, asked), weights=_Unmade())
    for size in sizes:
        plan.program(size)
    return asked


def listed(network: NetworkSpec, target: Target, sizes: tuple[int, ...] = SIZES) -> Collection[Product]:
    """What is listed to be measured."""
    return needs_of(plan_of(network, target, lambda product, choice: True, {}), sizes, PROCESSORS).products


def without(lost: Callable[[Choice], bool], of: Product | None = None) -> Keep:
    """Candidates of one product, or of all, are missing."""
    return lambda product, choice: (of is not None and product != of) or not lost(choice)


def losses(products: Collection[Product]) -> Iterator[tuple[str, Keep]]:
    """Each candidate family of each product missing in turn, and of all products."""
    families: dict[str, Callable[[Choice], bool]] = {
        "whole": lambda choice: choice.whole,
        "split": lambda choice: choice.splits > 1,
        "own": lambda choice: not choice.library,
        "library": lambda choice: bool(choice.library),
    }
    yield "nothing", lambda product, choice: True
    for name, is_lost in families.items():
        yield f"every {name}", without(is_lost)
        for missing in products:
            yield f"{name} of {missing}", without(is_lost, missing)


@pytest.mark.integration
@pytest.mark.parametrize("network", [WITH_SMOLGEN, PLAIN], ids=["smolgen", "plain"])
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_plan_asks_for_listed_products_only_whatever_is_missing(network: NetworkSpec, target: Target) -> None:
    products = listed(network, target)
    for what, keep in losses(products):
        assert not [product for product in asked_of(network, target, keep) if product not in products], what


def test_reader_without_biases_is_listed_with_and_without_norm() -> None:
    target, sizes = TARGETS[1], (128,)
    asked = asked_of(WITH_SMOLGEN, target, lambda product, choice: True, sizes)
    compress = [product for product in asked if product.n == 32]
    assert {product.bias for product in compress} == {False, True}
    assert {*listed(WITH_SMOLGEN, target, sizes)} >= {*compress}

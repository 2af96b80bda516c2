# SPDX-License-Identifier: GPL-3.0-or-later
"""Which candidates are measured where a product's neighbours are known."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.target import Precision, nvidia_target
from evaluator.backends.gpu.plan import hopper
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.tiles import Choice, Measured, candidates
from evaluator.backends.gpu.tuning.bench import Bench
from evaluator.backends.gpu.tuning.shortlist import in_full, neighbours, shortlist
from evaluator.backends.gpu.tuning.tune import Tuner
from evaluator.network.spec import Activation
from tests.evaluator.backends.gpu.fibers import open_amd
from tests.hip_runtime.standin import Runtime

SIZES = (64, 128, 256, 512, 1024, 2048, 3072)
PRODUCTS = [Product(m, 1024, 512, Activation.NONE, residual=each) for m in SIZES for each in (False, True)]
TARGET = nvidia_target(9, 0)


def test_some_sizes_are_measured_in_full() -> None:
    full = in_full(PRODUCTS)
    assert sorted(product.m for product in full if product.residual) == [64, 512, 3072]
    assert len(full) == 6
    assert in_full(PRODUCTS[:1]) == set(PRODUCTS[:1])


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 8, 32, 256, 264, 1024, 1056),
        (1, 2, 3, 4, 5, 6, 7, 8, 9),
        (1, 100, 101, 850),
        (7,),
        tuple(range(1, 200)),
    ],
)
def test_a_size_is_measured_in_full_in_each_factor_of_8_of_any_list(sizes: tuple[int, ...]) -> None:
    products = [replace(PRODUCTS[0], m=size) for size in sizes]
    full = sorted(product.m for product in in_full(products))
    assert (full[0], full[-1]) == (sizes[0], sizes[-1])
    for low, high in pairwise(full):
        assert high <= 8 * low or not any(low < size < high for size in sizes)
    assert all(full[i + 2] > 8 * full[i] for i in range(len(full) - 2)), "no more than needed"


def test_neighbours_are_the_nearest_of_the_same_product() -> None:
    product = PRODUCTS[4]
    assert product.m == 256
    known = [PRODUCTS[0], PRODUCTS[2], PRODUCTS[8], PRODUCTS[12], replace(PRODUCTS[6], n=768), PRODUCTS[7]]
    assert neighbours(product, known) == (PRODUCTS[2], PRODUCTS[8])
    assert neighbours(product, known[:2]) is None
    assert neighbours(product, []) is None


def test_tiles_near_a_neighbours_best_get_all_splits() -> None:
    possible = candidates(PRODUCTS[4], TARGET, Precision.FP16)
    tiles = list(dict.fromkeys(choice.tile for choice in possible))
    below = [Measured(Choice(tiles[0], 4), 10.0), Measured(Choice(tiles[1], 1), 12.0)]
    above = [
        Measured(Choice(tiles[2], 2), 20.0),
        Measured(Choice(tiles[0], 2), 21.0),
        Measured(Choice(None, library="cuBLASLt"), 22.0),
        Measured(Choice(tiles[0], 1), 22.5),
        Measured(Choice(tiles[3], 1), 22.5),
    ]
    found = shortlist(possible, [below, above])
    assert found.libraries == {"cuBLASLt"}
    # Four were faster than tiles[3]. tiles[1] is 1.2 times slower, but the fastest that is not split.
    assert {choice.tile for choice in found.own} == {tiles[0], tiles[1], tiles[2]}
    assert sorted(choice.splits for choice in found.own if choice.tile == tiles[0]) == [1, 2, 3, 4]
    assert [choice.splits for choice in found.own if choice.tile == tiles[2]] == [2]


def test_own_families_are_measured_when_a_library_is_fastest() -> None:
    product = replace(PRODUCTS[-1], m=4096)
    wide = [Choice(None, hopper=tile) for tile in hopper.candidates(product, TARGET, Precision.FP16)]
    own = [*candidates(product, TARGET, Precision.FP16), *wide]
    whole = next(choice for choice in own if choice.whole)
    of_library = Choice(None, library="cuBLASLt")
    results = [Measured(of_library, 10.0), Measured(whole, 30.0), Measured(wide[0], 40.0)]
    found = shortlist(own, [results, results])
    assert {*found.own} >= {whole, wide[0]}
    assert found.libraries == {"cuBLASLt"}


def test_wide_tiles_are_tried_where_they_are_fast() -> None:
    product = replace(PRODUCTS[-1], m=4096)
    own = [Choice(None, hopper=tile) for tile in hopper.candidates(product, TARGET, Precision.FP16)]
    assert len(own) > 1
    best = [Measured(own[1], 10.0)]
    found = shortlist([*candidates(product, TARGET, Precision.FP16), *own], [best, best])
    assert found.own == (own[1],)
    assert not found.libraries


@pytest.mark.kernels
@pytest.mark.parametrize("shortlists", [True, False])
def test_the_tuner_measures_fewer_between(
    shortlists: bool, runtime: Runtime, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = [Product(m, 32, 512, Activation.NONE) for m in (8, 16, 24, 32, 40)]
    device = open_amd()
    looked: dict[int, list[Choice]] = {product.m: [] for product in products}

    def first_look(bench: Bench, choice: Choice) -> float:
        looked[bench._product.m].append(choice)
        return float(choice.splits)

    monkeypatch.setattr(Bench, "first_look", first_look)
    monkeypatch.setattr(Bench, "second_look", lambda bench, choice, once: once)
    compiler = Compiler(device, cache_folder=kernel_cache)
    tuner = Tuner(device, compiler, Precision.FP32, (), use_cache=False, shortlists=shortlists)
    tuner.measure_all(Needs(products))
    assert set(tuner.known) == set(products)
    most = {m: max(choice.splits for choice in choices) for m, choices in looked.items()}
    assert most[8] == most[40] > 2
    # Between them the fastest that is not split and the fastest that is, of 2 splits.
    assert [most[m] for m in (16, 24, 32)] == [2 if shortlists else most[8]] * 3


@pytest.mark.kernels
def test_all_candidates_are_tried_when_no_likely_one_is_right(
    runtime: Runtime, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = Product(16, 32, 64, Activation.NONE)
    device = open_amd()
    compiler = Compiler(device, cache_folder=kernel_cache)
    tuner = Tuner(device, compiler, Precision.FP32, (), use_cache=False)
    small, large = replace(product, m=8), replace(product, m=32)
    unknown = [Measured(Choice(None, library="given up"), 1.0)]
    tuner.known = {small: unknown, large: unknown}
    asked: list[int] = []
    honest = Tuner._first_looks

    def first_looks(
        self: Tuner, bench: Bench, of: Product, own: Sequence[Choice], libraries: Collection[str]
    ) -> list[Measured]:
        asked.append(len(own))
        return honest(self, bench, of, own, libraries)

    monkeypatch.setattr(Tuner, "_first_looks", first_looks)
    assert tuner.measure(product, beside=(small, large))
    assert asked[0] == 0 < asked[1]

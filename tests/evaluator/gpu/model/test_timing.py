# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of made-up code on a made-up card, whose times can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Precision, amd_target
from evaluator.gpu.inspect.resources import Resources
from evaluator.gpu.model.cards import CARDS
from evaluator.gpu.model.code import Code, Work
from evaluator.gpu.model.timing import Timing, flop_of, timing, traffic_of
from evaluator.gpu.plan.products.gemm import gemm_constants
from evaluator.gpu.plan.program import Launch
from evaluator.gpu.plan.tiles import Tile

TARGET = amd_target("gfx942")
TILE = Tile(64, 64, 32, 2, 2, 2, 1.0)
M = N = 1024
K = 3200
"""256 tiles, 100 steps."""

CARD = replace(
    CARDS["mi300x"],
    units=64,
    clock=1000,
    matrix=512,
    memory=1000,
    cache=1000,
    shared=128,
    level2=64,
    latency=100,
    memory_latency=100,
    launch=1.0,
)
LOOP = Work(matrix=128.0, vector=20.0, shared=10.0, loaded=64.0, latency=50.0, products=8)
REST = Work(latency=0.0)


def product(work: Work, *, waves: int = 1, split: int = 1) -> Timing:
    """waves: of a SIMD."""
    key = KernelKey("gemm", Precision.FP16, tuple(gemm_constants(TILE, split=split > 1).items()))
    steps = K // TILE.block_k // split
    grid = (N // TILE.block_n, M // TILE.block_m, split)
    launch = Launch(key, grid, 256, 0, (*(None,) * 7, M, N, K, K, N, K, steps), "product")
    code = Code(work, REST, Resources(64, 0, 0, 0, waves, 8))
    return timing(launch, code, CARD, TARGET, traffic_of(launch, {}), cached=False)


def test_what_waves_need_in_every_step_is_added_up() -> None:
    """Four rounds of a block a unit, 100 steps: 128 of the matrix unit, 20 of the vector unit, four waves'
    10 of shared memory (times what its banks' conflicts cost)."""
    found = product(LOOP)
    assert found.limit == "matrix unit"
    plain = 4 * 100 * (128 + 20) / 1000
    with_shared = found.microseconds - CARD.launch - plain
    assert 4 * 100 * 40 / 1000 <= with_shared <= 2 * 4 * 100 * 40 / 1000
    assert found.bound == pytest.approx(4 * (100 * 140 + 100) / 1000 + CARD.launch, rel=0.1)
    assert found.bound < found.microseconds


def test_a_chain_of_waits_is_hidden_by_more_blocks() -> None:
    waiting = replace(LOOP, matrix=8.0, vector=1.0, shared=0.0, latency=1000.0, products=8)
    alone, four = product(waiting), product(waiting, waves=4)
    assert alone.limit == four.limit == "latency"
    assert alone.microseconds > 3 * four.microseconds


def test_every_wait_in_a_turn_of_the_loop_takes_its_latency() -> None:
    waiting = replace(LOOP, matrix=8.0, vector=1.0, shared=0.0, latency=0.0, loads=True)
    once, twice = (replace(waiting, steps=steps) for steps in (1, 2))
    assert product(twice).microseconds > 1.8 * product(once).microseconds


def test_no_launch_is_faster_than_its_bytes() -> None:
    nothing = replace(LOOP, matrix=0.0, vector=0.0, shared=0.0, loaded=0.0, latency=0.0, products=8)
    found = product(nothing)
    data = 2 * (M * K + N * K + M * N)
    assert found.traffic.weights + found.traffic.data == data
    assert found.microseconds > data / (CARD.memory * 1e3)
    assert found.intensity == pytest.approx(2 * M * N * K / data)


def test_split_products_leave_partial_sums() -> None:
    whole, split = product(LOOP), product(LOOP, split=2)
    assert split.flop == whole.flop == 2 * M * N * K
    assert split.traffic.data - whole.traffic.data == 4 * M * N * 2 - 2 * M * N


def test_the_cards_are_those_published() -> None:
    """fp16 of the matrix units, TFLOP/s, by the makers' data sheets."""
    published = {"7900xtx": 122.8, "9070xt": 195, "mi300x": 1307.4, "mi355x": 2516.6, "strix-halo": 59.4}
    for name, tflops in published.items():
        assert CARDS[name].matrix_tflops == pytest.approx(tflops, rel=0.01)


def test_attention_counts_both_products() -> None:
    constants = (("DEPTH", 32), ("SLICE", 32), ("BIAS", 1), ("SHARE_SPACE", 0))
    launch = Launch(KernelKey("attention", Precision.FP16, constants), (32, 256, 1), 256, 0, (), "attention")
    assert flop_of(launch) == 32 * 256 * 2 * 2 * 64 * 64 * 32

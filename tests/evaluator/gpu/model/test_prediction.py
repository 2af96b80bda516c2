# SPDX-License-Identifier: GPL-3.0-or-later
"""Predictions from real machine code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.inspect.variants import Variant
from evaluator.gpu.model.amd import code_of
from evaluator.gpu.model.cards import CARDS
from evaluator.gpu.model.prediction import Model, unavailable
from evaluator.gpu.plan.products.gemm import gemm_constants
from evaluator.gpu.plan.tiles import Tile

TILE = Tile(32, 32, 128, 2, 1, 6, 0.3, warps_k=4)


@pytest.mark.parametrize("name", ["7900xtx", "mi300x", "mi355x"])
def test_the_loop_of_a_product_holds_what_its_tile_says(name: str) -> None:
    """A wave's part of a step is 16 x 32 and 32 along k: 4 products of 16 x 16 x 16, for which it reads three
    fragments twice."""
    card = CARDS[name]
    if reason := unavailable(card):
        pytest.skip(reason)
    model = Model(card, tuned=False)
    target = model.target
    key = KernelKey("gemm", Precision.FP16, tuple(gemm_constants(TILE).items()))
    variant = Variant(key, TILE.shared_bytes(target, Precision.FP16), TILE.warps * target.wave)
    code = code_of(variant, target, card)
    assert code.loop.products == 4
    assert code.rest.products == 0
    # 8192 operations each, at the published rate; llvm-mca knows MFMA's by itself.
    assert code.loop.matrix == 4 * 8192 / card.matrix
    fragments = 6 * 16 * 16 * 2 * (2 if name == "7900xtx" else 1)  # gfx11 wants them twice
    tiles = 2 * 32 * 128 * 2 / TILE.warps
    assert code.loop.shared * 128 == fragments + tiles
    assert code.loop.loaded == tiles
    assert code.resources.waves >= 1


def test_a_network_takes_longer_with_more_positions_and_on_a_slower_card() -> None:
    card = CARDS["7900xtx"]
    if reason := unavailable(card):
        pytest.skip(reason)
    one, many = Model(card, tuned=False).predict("tiny-attention", (1, 64))
    assert one.milliseconds < many.milliseconds < 64 * one.milliseconds
    assert many.positions_per_second <= many.most_positions_per_second
    counts = Counter({phase.label: phase.count for phase in one.phases})
    assert counts["encoder.attention"] == 2  # both layers
    slow = replace(card, clock=card.clock // 4, memory=card.memory / 4, cache=card.cache / 4)
    assert Model(slow, tuned=False).predict("tiny-attention", (64,))[0].milliseconds > many.milliseconds

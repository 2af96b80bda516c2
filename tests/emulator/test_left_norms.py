# SPDX-License-Identifier: GPL-3.0-or-later
"""Layer norms that are left to those who read their rows, as machine code, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import AMD_UNITS, Precision, amd_target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.layers import PackedLayers
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.tiles import Choice, candidates
from evaluator.network.arithmetic import layer_norm
from evaluator.network.spec import Activation, Dense, FloatArray, LayerNorm
from tests.emulator.instructions import TARGETS
from tests.emulator.steps import builder, elements, matrix_of, normal, rounded, run

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]

ROWS, WIDTH, HIDDEN = 72, 128, 64
"""Of the rows, no whole tiles; HIDDEN: the k of the products that make them."""

MEAN = 3.0
"""Of the rows before the norm, in their deviations: what norms take away must cancel."""

TOLERANCE = {Precision.FP16: 4e-3, Precision.BF16: 3e-2}


def choices(device: Gpu, precision: Precision) -> list[Choice]:
    """Of what computes products whole: the largest tile, one with groups of waves along k, one for few rows,
    and those that take the weights as fragments."""
    target = device.info.target
    product = Product(ROWS, WIDTH, WIDTH, Activation.NONE)
    found = [(each, each.tile) for each in candidates(product, target, precision) if each.whole and each.tile]
    groups = [each for each, tile in found if tile.warps_k > 1]
    few = [each for each, tile in found if tile.block_m == 16 and tile.warps_k == 1]
    return [found[0][0], groups[0], few[0], *(each for each, tile in found if tile.direct)]


def product_and_bias(name: str, width: int, k: int, seed: int, precision: Precision) -> tuple[Linear, Dense]:
    """A layer as packed, and as what was stored."""
    weights = rounded(normal(width, k, seed=seed) * np.float32(k**-0.5), precision)
    dense = Dense(weights, normal(width, seed=seed + 1))
    packed = pack.matrix(weights, precision), pack.vector(dense.biases, precision)
    return Linear(name, width, *packed, Activation.NONE), dense


def assert_close(result: FloatArray, expected: FloatArray, precision: Precision) -> None:
    assert np.isfinite(result).all()
    limit = TOLERANCE[precision] * np.maximum(1, np.abs(expected)) * 2
    worst = np.abs(result - expected) / limit
    assert worst.max() <= 1, f"off by {np.abs(result - expected).max():.3g} at {np.argmax(worst)}"


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        (target, precision)
        for target in TARGETS
        for precision in (Precision.FP16, Precision.BF16)
        if amd_target(target).matrix_unit(precision) in AMD_UNITS
        and (target, precision) != ("gfx90a", Precision.BF16)  # the emulator lacks its bf16 MFMA
    ],
    indirect=["device"],
)
def test_readers_apply_the_norm(device: Gpu, precision: Precision) -> None:
    """One after the other: a product that leaves its norm; one that takes the rows as inputs; one that has
    them as its residual and leaves a norm, too, in the same memory; and one that takes what that leaves."""
    spread = np.float32(0.25)
    norms = [LayerNorm(1 + spread * normal(WIDTH, seed=s), normal(WIDTH, seed=s + 1), 1e-3) for s in (20, 30)]
    first, dense_first = product_and_bias("first", WIDTH, HIDDEN, 2, precision)
    second, dense_second = product_and_bias("second", WIDTH, HIDDEN, 4, precision)
    weights = normal(WIDTH, WIDTH, seed=6) * np.float32(WIDTH**-0.5)
    third = Dense(weights, normal(WIDTH, seed=7), Activation.RELU)
    a = rounded(normal(ROWS, HIDDEN), precision)
    skip = rounded(normal(ROWS, WIDTH, seed=8) + np.float32(MEAN), precision)
    for choice in choices(device, precision):
        made = builder(device, precision, choice=choice)
        layers = PackedLayers(precision, {})
        source, x = made.matrix("a", ROWS, HIDDEN), made.matrix("x", ROWS, WIDTH)
        x = linear(made, first, source, "x", residual=x, after=After(norms[0]), leave_norm=True)
        y = linear(made, layers.dense_of_norm("third", third, norms[0]), x, "y")
        z = linear(made, second, source, "x", residual=x, after=After(norms[1]), leave_norm=True)
        last = linear(made, layers.dense_of_norm("fourth", third, norms[1]), z, "last")
        memory = run(
            device, made.program, {"a": elements(a, HIDDEN, precision), "x": elements(skip, WIDTH, precision)}
        )
        expected_x = layer_norm(norms[0], a @ dense_first.weights.T + dense_first.biases + skip)
        expected_z = a @ dense_second.weights.T + dense_second.biases + expected_x
        assert_close(matrix_of(memory, z, precision), expected_z, precision)
        for matrix, inputs in ((y, expected_x), (last, layer_norm(norms[1], expected_z))):
            expected = np.maximum(inputs @ third.weights.T + third.biases, 0)
            assert_close(matrix_of(memory, matrix, precision), expected, precision)

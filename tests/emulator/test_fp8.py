# SPDX-License-Identifier: GPL-3.0-or-later
"""Products of e4m3 numbers as the machine code of the targets that multiply them, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.products.linear_layer import E4m3Scales, Linear
from evaluator.backends.gpu.plan.tiles import candidates
from evaluator.backends.gpu.tuning.bench import Bench
from evaluator.backends.gpu.tuning.samples import Samples
from evaluator.network import e4m3
from evaluator.network.spec import Activation, FloatArray, LayerNorm
from tests.emulator.instructions import E4M3_TARGETS
from tests.emulator.steps import (
    assert_close,
    assert_rounded,
    builder,
    elements,
    matrix_of,
    normal,
    rounded,
    run,
    smallest_tile,
)

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]

on_e4m3_units = pytest.mark.parametrize("device", E4M3_TARGETS, indirect=True)
"""On targets whose matrix unit multiplies e4m3 numbers."""


def numbers(*shape: int, seed: int = 1) -> FloatArray:
    """e4m3 numbers, among them the largest and subnormal ones."""
    values = normal(*shape, seed=seed) * np.exp(normal(*shape, seed=seed + 100))
    values[0, :2] = 448, -1000
    return e4m3.nearest(values).astype(np.float32)


def factors_of(width: int, inputs: float) -> FloatArray:
    """[width]: what the sums of each column are multiplied with. The first 16 columns have a scale of their
    own, as queries do."""
    columns = np.where(np.arange(width) < 16, 0.25, 1).astype(np.float32)
    return (columns / np.float32(inputs)).astype(np.float32)


def layer_of(weights: FloatArray, biases: FloatArray, inputs: float, kind: Activation) -> Linear:
    pairs = e4m3.codes(pack.padded(weights, 8, 16)).view(np.uint16)
    scales = E4m3Scales(inputs, 1 / inputs, 0.25 / inputs, 16)
    return Linear("layer", len(weights), pairs, pack.vector(biases, Precision.FP16), kind, eight=scales)


def given(a: FloatArray) -> dict[str, NDArray[Any]]:
    """The inputs of a product, as its program names them."""
    return {"a.e4m3": e4m3.codes(a)}


@on_e4m3_units
def test_products_of_8_bits_with_every_tile(device: Gpu) -> None:
    m, width, k = 72, 80, 336  # no whole tiles
    precision, target, inputs = Precision.FP16, device.info.target, 4.0
    a, b, biases = numbers(m, k), numbers(width, k, seed=2), normal(width, seed=3)
    factors = factors_of(width, inputs)
    expected = (a @ b.T) * factors + biases
    expected = expected / (1 + np.exp(-expected))
    layer = layer_of(b, biases, inputs, Activation.SWISH)
    product = Product(m, width, k // 2, Activation.SWISH, e4m3=True)
    tried = set()
    for choice in candidates(product, target, precision):
        if (choice.tile, choice.splits > 1) in tried:
            continue
        tried.add((choice.tile, choice.splits > 1))
        made = builder(device, precision, choice=choice)
        source = made.rounded("a", m, k, e4m3.E4m3Inputs(inputs))
        elements_of = linear(made, layer, source, "out")
        pairs = linear(made, layer, source, "out", rounded=e4m3.E4m3Inputs(0.5), keep=False)
        memory = run(device, made.program, given(a))
        assert_close(matrix_of(memory, elements_of, precision), expected, precision, 2000)
        assert_rounded(memory, pairs, device, expected)


@pytest.mark.parametrize("device", ["gfx942", "gfx950"], indirect=True)
def test_products_of_8_bits_by_fragments(device: Gpu) -> None:
    m, width, k, inputs = 72, 80, 256, 4.0
    precision, target = Precision.FP16, device.info.target
    a, b, biases = numbers(m, k), numbers(width, k, seed=2), normal(width, seed=3)
    factors = factors_of(width, inputs)
    layer = layer_of(b, biases, inputs, Activation.NONE)
    product = Product(m, width, k // 2, Activation.NONE, e4m3=True)
    choices = [each for each in candidates(product, target, precision) if each.tile and each.tile.direct]
    assert choices
    expected = (a @ b.T) * factors + biases
    for choice in choices:
        made = builder(device, precision, choice=choice)
        out = linear(made, layer, made.rounded("a", m, k, e4m3.E4m3Inputs(inputs)), "out")
        memory = run(device, made.program, given(a))
        assert_close(matrix_of(memory, out, precision), expected, precision, 2000)


@pytest.mark.parametrize("device", ["gfx942", "gfx950"], indirect=True)
def test_tuner_compares_8_bit_products_with_rounded_operands(device: Gpu) -> None:
    product = Product(64, 32, 64, Activation.RELU, residual=True, e4m3=True)
    choice = smallest_tile(device.info.target, Precision.FP16)(product)
    compiler = Compiler(device, use_cache=False)
    with Samples(device, Precision.FP16) as samples, Bench(device, compiler, (), product, samples) as bench:
        errors = bench.errors(choice)
    assert errors.within(Precision.FP16)
    assert errors.mean_square < 1e-3


@on_e4m3_units
@pytest.mark.parametrize("splits", [1, 3])
def test_a_norm_leaves_its_result_in_both_forms(device: Gpu, splits: int) -> None:
    width, k = 96, 640
    precision, target = Precision.FP16, device.info.target
    norm = LayerNorm(normal(width, seed=2), normal(width, seed=3), 1e-3)
    product = Product(64, width, k // 2, Activation.NONE, e4m3=True)
    choice = next(each for each in candidates(product, target, precision) if each.splits == splits)
    made = builder(device, precision, 1, choice)
    a, b, biases = numbers(64, k), numbers(width, k, seed=6), normal(width, seed=8)
    skip = rounded(normal(64, width, seed=7), precision)
    factors = factors_of(width, 16.0)
    layer = layer_of(b, biases, 16.0, Activation.NONE)
    source, residual = made.rounded("a", 64, k, e4m3.E4m3Inputs(16.0)), made.matrix("skip", 64, width)
    out = linear(
        made, layer, source, "out", residual=residual, after=After(norm), rounded=e4m3.E4m3Inputs(8.0)
    )
    inputs = given(a) | {"skip": elements(skip, residual.stride, precision)}
    memory = run(device, made.program, inputs)
    x = (a @ b.T) * factors + biases + skip
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-3)
    expected = x * norm.gammas + norm.betas
    assert_close(matrix_of(memory, out, precision), expected, precision, 64)
    assert out.rounded is not None
    assert_rounded(memory, out.rounded, device, matrix_of(memory, out, precision))

"""Products of numbers of 8 bits as the machine code of the targets that multiply them, against numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.products.epilogue import After
from evaluator.gpu.plan.products.launches import linear
from evaluator.gpu.plan.products.linear_layer import E4m3Scales, Int8Scales, Linear
from evaluator.gpu.plan.tiles import candidates
from evaluator.gpu.tuning.bench import Bench
from evaluator.gpu.tuning.samples import Samples
from evaluator.network import e4m3, int8
from evaluator.network.eight_bits import EightBits
from evaluator.network.spec import Activation, FloatArray, LayerNorm, RoundedInputs
from tests.emulator.instructions import EIGHT_BIT_TARGETS
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

eight_bits = pytest.mark.parametrize(
    ("device", "form"),
    [(target, form) for target in EIGHT_BIT_TARGETS for form in EightBits],
    indirect=["device"],
)
"""On targets whose matrix unit multiplies numbers of 8 bits, in both formats."""


def numbers(form: EightBits, *shape: int, seed: int = 1) -> FloatArray:
    """Of a format, among them the largest; of e4m3 also subnormal ones."""
    values = normal(*shape, seed=seed) * np.exp(normal(*shape, seed=seed + 100))
    if form is EightBits.INT8:
        return np.clip(np.rint(16 * values), -127, 127).astype(np.float32)
    values[0, :2] = 448, -1000
    return e4m3.nearest(values).astype(np.float32)


def bits(form: EightBits, values: FloatArray) -> NDArray[Any]:
    return values.astype(np.int8) if form is EightBits.INT8 else e4m3.codes(values)


@dataclass(frozen=True)
class Factors:
    """What sums of a product are multiplied with: of each row, and of each column. The first 16 columns have
    a scale of their own, as queries do."""

    rows: FloatArray
    columns: FloatArray

    @classmethod
    def of(cls, form: EightBits, m: int, width: int, inputs: float) -> Factors:
        columns = np.where(np.arange(width) < 16, 0.25, 1).astype(np.float32)
        if form is EightBits.E4M3:
            return cls(np.ones((m, 1), np.float32), columns / np.float32(inputs))
        rows = (0.5 + np.arange(m) % 5)[:, None] / 64
        return cls(rows.astype(np.float32), columns * np.float32(1 / 64) * (1 + np.arange(width) % 3))


def rounding(form: EightBits, scale: float) -> RoundedInputs:
    return int8.Int8Inputs() if form is EightBits.INT8 else e4m3.E4m3Inputs(scale)


def layer_of(
    form: EightBits,
    weights: FloatArray,
    biases: FloatArray,
    inputs: float,
    factors: Factors,
    kind: Activation,
) -> Linear:
    pairs = bits(form, pack.padded(weights, 8, 16)).view(np.uint16)
    scales: E4m3Scales | Int8Scales = E4m3Scales(inputs, 1 / inputs, 0.25 / inputs, 16)
    if form is EightBits.INT8:
        scales = Int8Scales(pack.vector(factors.columns, Precision.FP16))
    return Linear("layer", len(weights), pairs, pack.vector(biases, Precision.FP16), kind, eight=scales)


def given(form: EightBits, a: FloatArray, factors: Factors) -> dict[str, NDArray[Any]]:
    """The inputs of a product, as its program names them."""
    name = f"a.{form.value}"
    return {name: bits(form, a)} | ({f"{name}.scales": factors.rows} if form is EightBits.INT8 else {})


@eight_bits
def test_products_of_8_bits_with_every_tile(device: Device, form: EightBits) -> None:
    m, width, k = 72, 80, 336  # no whole tiles
    precision, target, inputs = Precision.FP16, device.info.target, 4.0
    a, b, biases = numbers(form, m, k), numbers(form, width, k, seed=2), normal(width, seed=3)
    factors = Factors.of(form, m, width, inputs)
    expected = (a @ b.T) * factors.rows * factors.columns + biases
    expected = expected / (1 + np.exp(-expected))
    layer = layer_of(form, b, biases, inputs, factors, Activation.SWISH)
    product = Product(m, width, k // 2, Activation.SWISH, form=form)
    tried = set()
    for choice in candidates(product, target, precision):
        if (choice.tile, choice.splits > 1) in tried:
            continue
        tried.add((choice.tile, choice.splits > 1))
        made = builder(device, precision, choice=choice)
        source = made.rounded("a", m, k, rounding(form, inputs))
        elements_of = linear(made, layer, source, "out")
        pairs = linear(made, layer, source, "out", rounded=rounding(form, 0.5), keep=False)
        memory = run(device, made.program, given(form, a, factors))
        assert_close(matrix_of(memory, elements_of, precision), expected, precision, 2000)
        assert_rounded(memory, pairs, device, expected)


@pytest.mark.parametrize("form", EightBits)
@pytest.mark.parametrize("device", ["gfx942"], indirect=True)
def test_products_of_8_bits_by_fragments(device: Device, form: EightBits) -> None:
    m, width, k, inputs = 72, 80, 256, 4.0
    precision, target = Precision.FP16, device.info.target
    a, b, biases = numbers(form, m, k), numbers(form, width, k, seed=2), normal(width, seed=3)
    factors = Factors.of(form, m, width, inputs)
    layer = layer_of(form, b, biases, inputs, factors, Activation.NONE)
    product = Product(m, width, k // 2, Activation.NONE, form=form)
    choices = [each for each in candidates(product, target, precision) if each.tile and each.tile.direct]
    assert choices
    expected = (a @ b.T) * factors.rows * factors.columns + biases
    for choice in choices:
        made = builder(device, precision, choice=choice)
        out = linear(made, layer, made.rounded("a", m, k, rounding(form, inputs)), "out")
        memory = run(device, made.program, given(form, a, factors))
        assert_close(matrix_of(memory, out, precision), expected, precision, 2000)


@pytest.mark.parametrize("form", EightBits)
@pytest.mark.parametrize("device", ["gfx942"], indirect=True)
def test_what_the_tuner_compares_products_of_8_bits_with(device: Device, form: EightBits) -> None:
    product = Product(64, 32, 64, Activation.RELU, residual=True, form=form)
    choice = smallest_tile(device.info.target, Precision.FP16)(product)
    compiler = Compiler(device, use_cache=False)
    with (
        Samples(device, Precision.FP16) as samples,
        Bench(device, compiler, (), product, samples) as bench,
    ):
        errors = bench.errors(choice)
    assert errors.within(Precision.FP16)
    assert errors.mean_square < 1e-3


@eight_bits
@pytest.mark.parametrize("splits", [1, 3])
def test_a_norm_leaves_its_result_in_both_forms(device: Device, form: EightBits, splits: int) -> None:
    width, k = 96, 640
    precision, target = Precision.FP16, device.info.target
    norm = LayerNorm(normal(width, seed=2), normal(width, seed=3), 1e-3)
    product = Product(64, width, k // 2, Activation.NONE, form=form)
    choice = next(each for each in candidates(product, target, precision) if each.splits == splits)
    made = builder(device, precision, 1, choice)
    a, b, biases = numbers(form, 64, k), numbers(form, width, k, seed=6), normal(width, seed=8)
    skip = rounded(normal(64, width, seed=7), precision)
    factors = Factors.of(form, 64, width, 16.0)
    layer = layer_of(form, b, biases, 16.0, factors, Activation.NONE)
    source, residual = made.rounded("a", 64, k, rounding(form, 16.0)), made.matrix("skip", 64, width)
    out = linear(
        made, layer, source, "out", residual=residual, after=After(norm), rounded=rounding(form, 8.0)
    )
    inputs = given(form, a, factors) | {"skip": elements(skip, residual.stride, precision)}
    memory = run(device, made.program, inputs)
    x = (a @ b.T) * factors.rows * factors.columns + biases + skip
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-3)
    expected = x * norm.gammas + norm.betas
    assert_close(matrix_of(memory, out, precision), expected, precision, 64)
    assert out.rounded is not None
    assert_rounded(memory, out.rounded, device, matrix_of(memory, out, precision))

# SPDX-License-Identifier: GPL-3.0-or-later
"""The measured choice of matrix products: correct candidates only, and measured once."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from evaluator.backends.gpu.backend import unavailable
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import DeviceError, Gpu
from evaluator.backends.gpu.driver.target import Precision, amd_target, nvidia_target
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.program import Program
from evaluator.backends.gpu.plan.tiles import Choice, Measured, candidates, model_chooser
from evaluator.backends.gpu.tuning.bench import Bench, Errors
from evaluator.backends.gpu.tuning.samples import Samples
from evaluator.backends.gpu.tuning.tune import Tuner
from evaluator.commands.tune import table
from evaluator.network.spec import Activation
from tests.programs import EVALUATOR, run

pytestmark = pytest.mark.kernels

PRODUCT = Product(16, 32, 64, Activation.RELU, residual=True, followed=True)


def tuner(device: Gpu, kernel_cache: Path, **arguments: Any) -> Tuner:
    return Tuner(device, Compiler(device, cache_folder=kernel_cache), Precision.FP32, (), **arguments)


@pytest.mark.usefixtures("empty_cache")
def test_tuner_drops_wrong_candidates_and_measures_each_once(
    device: Gpu, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Bench.errors

    def errors(bench: Bench, choice: Choice) -> Errors:
        return honest(bench, choice) if choice.splits == 1 else Errors(float("nan"), float("nan"))

    monkeypatch.setattr(Bench, "errors", errors)
    first = tuner(device, kernel_cache)
    measured = first.measure(PRODUCT)
    assert measured
    assert all(each.choice.splits == 1 for each in measured)
    assert [each.microseconds for each in measured] == sorted(each.microseconds for each in measured)

    chosen = first.choose(PRODUCT)
    first.save()
    again = tuner(device, kernel_cache)
    assert again.choose(PRODUCT) == chosen
    assert again.measured == 0


def test_choices_that_spill_are_not_measured_unless_all_do(
    device: Gpu, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spilling(choice: Choice) -> int:
        return 16 if choice.splits > 1 else 0

    monkeypatch.setattr(Bench, "scratch_bytes", lambda _, choice: spilling(choice))
    measured = tuner(device, kernel_cache).measure(PRODUCT)
    assert measured and not any(spilling(each.choice) for each in measured)
    monkeypatch.setattr(Bench, "scratch_bytes", lambda *_: 16)
    measured = tuner(device, kernel_cache).measure(PRODUCT)
    assert any(spilling(each.choice) for each in measured)


@pytest.mark.usefixtures("empty_cache")
def test_all_needed_are_measured_when_one_is_unknown(device: Gpu, kernel_cache: Path) -> None:
    other = Product(8, 16, 32, Activation.NONE)
    first = tuner(device, kernel_cache)
    first.expect(lambda: Needs((PRODUCT, other)))
    first.choose(PRODUCT)
    assert set(first.known) == {PRODUCT, other}
    first.choose(other)
    assert first.measured == 2
    first.save()
    again = tuner(device, kernel_cache)
    again.expect(lambda: pytest.fail("everything is known"))
    again.choose(PRODUCT)
    again.choose(other)


def test_a_look_takes_as_many_runs_as_it_has_time_for(
    device: Gpu, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    looks = iter([50.0, 200.0, 50.0])

    def timed(bench: Bench, program: Program, count: int) -> float:
        runs.append(count)
        return next(looks)

    monkeypatch.setattr(Bench, "time", timed)
    compiler = Compiler(device, cache_folder=kernel_cache)
    choice = candidates(PRODUCT, device.info.target, Precision.FP32)[0]
    with Samples(device, Precision.FP32) as samples, Bench(device, compiler, (), PRODUCT, samples) as bench:
        assert [bench.first_look(choice), bench.first_look(choice)] == [50.0, 200.0]
        assert bench.second_look(choice, 20.0) == 50.0
    assert runs == [6, 4, 25]


def test_tuner_measures_close_candidates_again_alternately(
    device: Gpu, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = iter(range(100, 200, 4))
    again: list[Choice] = []

    def second_look(bench: Bench, choice: Choice, once: float) -> float:
        again.append(choice)
        return once - 10.0

    monkeypatch.setattr(Bench, "first_look", lambda bench, choice: float(next(first)))
    monkeypatch.setattr(Bench, "second_look", second_look)
    honest = Bench.in_turns
    close: list[Choice] = []

    def in_turns(bench: Bench, choices: Sequence[Choice], about_us: float) -> list[float]:
        assert len(honest(bench, choices, about_us)) == len(choices)
        close.extend(choices)
        return [float(len(choices) - index) for index in range(len(choices))]

    monkeypatch.setattr(Bench, "in_turns", in_turns)
    measured = tuner(device, kernel_cache, use_cache=False).measure(PRODUCT)
    assert len(again) == min(7, len(measured))  # 100 to 124
    assert close == again[:2]  # 90 and 94; the next is 1.09 times the best
    assert [each.choice for each in measured[:2]] == close[::-1]
    assert [each.microseconds for each in measured[:3]] == [1.0, 2.0, 98.0]


def test_the_host_knows_the_rows_of_the_inputs(device: Gpu) -> None:
    elements = 5 * 262145 + 77  # the block is written several times at once, and not in whole
    with Samples(device, Precision.FP16) as samples:
        found = np.empty(elements, np.float16)
        device.read(samples.inputs(elements), found)
        rows = elements // 1000 - np.arange(3) - 1
        expected = found[: elements // 1000 * 1000].reshape(-1, 1000)[rows]
        assert (samples.rows(rows, 1000) == expected).all()
        assert (samples.rows([0], 77, at=elements - 77) == found[-77:]).all()


def test_weights_of_one_shape_are_made_once(device: Gpu) -> None:
    with Samples(device, Precision.FP16) as samples:
        first = samples.weights(32, 64, 0)
        assert samples.weights(32, 64, 0) is first
        stored = np.empty((32, 64), np.float16)
        device.read(first.plain[first.plain.count + 1], stored)
        assert (stored == first.exact).all()
        assert samples.weights(32, 64, 8).exact.shape == (32, 64)


def test_nothing_right_is_an_error(device: Gpu, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "errors", lambda *_: Errors(0.1, 0.5))
    with pytest.raises(DeviceError, match=r"nothing computes .* correctly"):
        tuner(device, kernel_cache, use_cache=False).measure(PRODUCT)


@pytest.mark.parametrize(
    "product",
    [
        PRODUCT,
        Product(1, 16, 40, Activation.SELU),
        Product(200, 32, 32, Activation.MISH, followed=True, bias=False),
        Product(128, 16, 9 * 16, Activation.RELU, residual=True, convolution=True),
        Product(64, 16, 32, Activation.SWISH, bias_by_square=True),
        Product(3, 32, 64 * 8, Activation.TANH, segment=8),
    ],
)
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_our_kernel_agrees_with_the_reference_on_the_host(
    device: Gpu, kernel_cache: Path, product: Product, precision: Precision
) -> None:
    compiler = Compiler(device, cache_folder=kernel_cache)
    choice = next(each for each in candidates(product, device.info.target, precision) if each.splits == 1)
    with Samples(device, precision) as samples, Bench(device, compiler, (), product, samples) as bench:
        errors = bench.errors(choice)
    assert errors.within(precision), errors


@pytest.mark.usefixtures("empty_cache")
def test_a_damaged_cache_is_measured_again(device: Gpu, kernel_cache: Path, tmp_path: Path) -> None:
    first = tuner(device, kernel_cache)
    first.choose(PRODUCT)
    first.save()
    for path in tmp_path.rglob("*.json"):
        path.write_text('[{"product": 3}]')
    again = tuner(device, kernel_cache)
    again.choose(PRODUCT)
    assert again.measured == 1


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("target", [*map(amd_target, ("gfx1100", "gfx906", "gfx942")), nvidia_target(9, 0)])
@pytest.mark.parametrize("m", [1, 64, 65536])
def test_every_product_has_a_candidate_that_fits(target: Any, precision: Precision, m: int) -> None:
    for k in (16, 768, 8192):
        for by_square in (False, True):
            product = Product(m, 1024, k, Activation.NONE, bias_by_square=by_square)
            possible = candidates(product, target, precision)
            assert any(choice.splits == 1 for choice in possible)
            for choice in possible:
                assert choice.tile is not None
                assert choice.tile.shared_bytes(target, precision) <= target.shared_bytes
                assert choice.splits == 1 or not by_square


def test_deterministic_choices_sum_along_k_in_one_order() -> None:
    choose = model_chooser(nvidia_target(9, 0), Precision.FP16, 132, deterministic=True)
    for m in (1, 64, 2048, 65536):
        choice = choose(Product(m, 256, 2048, Activation.NONE))
        assert choice.tile is not None
        assert (choice.splits, choice.tile.warps_k) == (1, 1)


def test_only_whole_steps_by_twos_take_fragments() -> None:
    target, precision = amd_target("gfx942"), Precision.FP16
    usual = Product(64, 256, 128, Activation.NONE)
    irregular = (replace(usual, k=96), replace(usual, k=64 * 9, convolution=True), replace(usual, segment=2))
    for product, wanted in ((usual, True), *((each, False) for each in irregular)):
        tiles = [choice.tile for choice in candidates(product, target, precision)]
        assert any(tile is not None and tile.direct for tile in tiles) is wanted


def test_the_table_sets_the_fastest_against_the_best_of_another_kind() -> None:
    tile = candidates(PRODUCT, amd_target("gfx1100"), Precision.FP16)[0]
    choices = [
        Measured(Choice(None, 1, b"1", "hipBLASLt"), 3.0),
        Measured(Choice(None, 1, b"2", "hipBLASLt"), 4.0),
        Measured(tile, 5.0),
    ]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(table([(PRODUCT, choices), (PRODUCT, choices[2:])]))
    text = console.export_text()
    assert "16 x 32 x 64" in text
    assert "relu residual" in text
    assert [line.split("│")[3:7] for line in text.splitlines() if "5.0" in line] == [
        [f" {choices[0].choice} ", " 3.0 ", f" {tile} ", " 5.0 "],
        [f" {str(tile).ljust(14)} ", " 5.0 ", " " * (len(str(tile)) + 2), "     "],
    ]


def test_tuning_without_a_gpu_says_what_is_missing() -> None:
    if unavailable() is None:
        pytest.skip("this machine has a GPU")
    done = run(*EVALUATOR, "tune", status=1)
    assert done.stderr.startswith("error: no GPU can be used; amd: ")
    assert done.stderr.count("\n") == 1

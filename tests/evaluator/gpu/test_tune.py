"""The measured choice of matrix products: correct candidates only, and measured once."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evaluator.backends.gpu import unavailable
from evaluator.commands.tune import table
from evaluator.gpu import tune
from evaluator.gpu.bench import Bench, Errors
from evaluator.gpu.compiler import Compiler
from evaluator.gpu.device import Device, DeviceError
from evaluator.gpu.gemm import Choice, Product, candidates, model_chooser
from evaluator.gpu.target import Precision, amd_target, nvidia_target
from evaluator.gpu.tune import Measured, Tuner
from evaluator.network.spec import Activation
from tests.evaluator.gpu.fibers import open_amd
from tests.hip_runtime.standin import Runtime

PRODUCT = Product(16, 32, 64, Activation.RELU, residual=True, followed=True)


@pytest.fixture
def device(runtime: Runtime) -> Device:
    return open_amd()


def tuner(device: Device, kernel_cache: Path, **arguments: Any) -> Tuner:
    return Tuner(device, Compiler(device, cache_folder=kernel_cache), Precision.FP32, (), **arguments)


def test_what_disagrees_is_dropped_and_what_is_known_is_not_measured_again(
    device: Device, kernel_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune.platformdirs, "user_cache_dir", lambda *_: str(tmp_path))
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


def test_nothing_right_is_an_error(
    device: Device, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    device: Device, kernel_cache: Path, product: Product, precision: Precision
) -> None:
    compiler = Compiler(device, cache_folder=kernel_cache)
    choice = next(each for each in candidates(product, device.info.target, precision) if each.splits == 1)
    with Bench(device, compiler, precision, (), product) as bench:
        errors = bench.errors(choice)
    assert errors.within(precision), errors


def test_a_damaged_cache_is_measured_again(
    device: Device, kernel_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune.platformdirs, "user_cache_dir", lambda *_: str(tmp_path))
    first = tuner(device, kernel_cache)
    first.choose(PRODUCT)
    first.save()
    for path in tmp_path.rglob("*.json"):
        path.write_text('[{"product": 3}]')
    again = tuner(device, kernel_cache)
    again.choose(PRODUCT)
    assert again.measured == 1


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("target", [amd_target("gfx1100"), amd_target("gfx906"), nvidia_target(9, 0)])
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
    done = subprocess.run(
        [sys.executable, "-m", "evaluator", "tune"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: no GPU can be used; amd: ")
    assert done.stderr.count("\n") == 1

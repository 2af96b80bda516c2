"""The measured choice of matrix products: correct candidates only, and measured once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.gpu import tune
from evaluator.gpu.compiler import Compiler
from evaluator.gpu.device import Device
from evaluator.gpu.gemm import Choice, Product, candidates, model_chooser
from evaluator.gpu.target import Precision, amd_target, nvidia_target
from evaluator.gpu.tune import Tuner
from evaluator.network.spec import Activation
from tests.evaluator.gpu.fibers import open_amd
from tests.hip_runtime.standin import Runtime

PRODUCT = Product(16, 32, 64, Activation.RELU, residual=True, followed=True)


@pytest.fixture
def device(runtime: Runtime) -> Device:
    return open_amd()


def tuner(device: Device, kernel_cache: Path) -> Tuner:
    return Tuner(device, Compiler(device, cache_folder=kernel_cache), Precision.FP32, ())


def test_what_disagrees_is_dropped_and_what_is_known_is_not_measured_again(
    device: Device, kernel_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune.platformdirs, "user_cache_dir", lambda *_: str(tmp_path))
    honest = tune._Bench.result

    def result(bench: Any, choice: Choice) -> Any:
        computed = honest(bench, choice)
        return computed * np.float32(1.5) if choice.splits > 1 else computed

    monkeypatch.setattr(tune._Bench, "result", result)
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

"""What is known of architectures, and that the kernels compile for all of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from evaluator.gpu.compiler import KernelKey, source
from evaluator.gpu.gemm import model_chooser
from evaluator.gpu.plan import Plan
from evaluator.gpu.target import MatrixUnit, Precision, Target, amd_target, nvidia_target
from evaluator.network.random_network import random_network

AMD = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")


def kernels(target: Target, precision: Precision) -> dict[KernelKey, None]:
    """Those of a residual and an attention network at a small and a large batch."""
    found: dict[KernelKey, None] = {}
    for name in ("tiny-resnet", "tiny-attention"):
        plan = Plan(random_network(name), target, precision, model_chooser(target, precision, 64))
        for positions in (1, 128):
            found |= {key: None for key, _ in plan.program(positions).kernels()}
    return found


@pytest.mark.parametrize(
    ("name", "wave", "unit"),
    [
        ("gfx906:sramecc+:xnack-", 64, MatrixUnit.FMA),
        ("gfx90a:sramecc+:xnack-", 64, MatrixUnit.MFMA),
        ("gfx942", 64, MatrixUnit.MFMA),
        ("gfx1030", 32, MatrixUnit.FMA),
        ("gfx1100", 32, MatrixUnit.WMMA_GFX11),
        ("gfx1151", 32, MatrixUnit.WMMA_GFX11),
        ("gfx1201", 32, MatrixUnit.WMMA_GFX12),
    ],
)
def test_known_amd_targets(name: str, wave: int, unit: MatrixUnit) -> None:
    target = amd_target(name)
    assert (target.wave, target.unit, target.known) == (wave, unit, True)
    assert ":" not in target.name
    assert target.matrix_unit(Precision.FP32) is MatrixUnit.FMA


def test_an_unknown_target_gets_the_generic_kernels_and_says_so() -> None:
    target = amd_target("gfx1399")
    assert target.unit is MatrixUnit.FMA
    assert not target.known
    assert nvidia_target(7, 5).unit is MatrixUnit.FMA
    assert nvidia_target(9, 0).unit is MatrixUnit.MMA_SYNC


@pytest.mark.slow
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("name", AMD)
def test_kernels_compile_for_amd(name: str, precision: Precision, tmp_path: Path) -> None:
    clang = shutil.which("clang-19")
    if clang is None or shutil.which("ld.lld-19") is None:
        pytest.skip("needs clang-19 and lld-19")
    for index, key in enumerate(kernels(amd_target(name), precision)):
        path = tmp_path / f"{key.file}{index}.hip"
        path.write_text(source(key.file))
        flags = ["-x", "hip", f"--offload-arch={name}", "--cuda-device-only", "-nogpuinc", "-nogpulib"]
        flags += ["-O3", "-std=c++17", "-fno-strict-aliasing", "-Rpass-analysis=kernel-resource-usage"]
        done = subprocess.run(
            [clang, *flags, *key.options, str(path), "-o", str(path.with_suffix(".co"))],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{key}\n{done.stderr}"
        assert "VGPRs Spill: 0" in done.stderr, f"{key} spills registers on {name}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_kernels_compile_for_nvidia(capability: tuple[int, int], precision: Precision) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from evaluator.gpu.device import DeviceError
    from evaluator.gpu.nvidia import compile_source

    target = nvidia_target(*capability)
    for key in kernels(target, precision):
        try:
            assert compile_source(source(key.file), key.file, key.options, target)[:4] == b"\x7fELF"
        except DeviceError as error:
            pytest.fail(f"{key}\n{error}")

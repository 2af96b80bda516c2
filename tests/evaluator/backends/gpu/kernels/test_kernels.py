# SPDX-License-Identifier: GPL-3.0-or-later
"""Compilers of kernels: instructions, spills and errors. `scripts/spills.py` compiles every kernel."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.backends.gpu.driver.compiler import AMD_FLAGS, KernelKey, source
from evaluator.backends.gpu.driver.device import CompilationError
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target
from scripts.amd_compilers import compile_file
from scripts.spills import Kernel, spilled, target_named, unavailable, used

pytestmark = pytest.mark.kernels


def compiled_for(name: str) -> Target:
    """Skips the calling test if the target's compiler is absent."""
    target = target_named(name)
    if reason := unavailable(target):
        pytest.skip(f"{name}: {reason}")
    return target


def assembly(file: str, target: Target, precision: Precision, folder: Path) -> str:
    key = next(each.key for each in used(target, precision) if each.key.file == file)
    (path := folder / "kernel.hip").write_text(source(file), "utf-8")
    compile_file(path, target.name, (*AMD_FLAGS, *key.options, *target.options), folder / "kernel.s")
    return (folder / "kernel.s").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "precision", "instruction"),
    [
        ("gfx908", Precision.FP16, "v_mfma_f32_16x16x16f16"),
        ("gfx908", Precision.BF16, ""),
        ("gfx942", Precision.FP16, "v_mfma_f32_16x16x16_f16"),
        ("gfx950", Precision.FP16, "v_mfma_f32_16x16x32_f16"),
        ("gfx950", Precision.BF16, "v_mfma_f32_16x16x32_bf16"),
    ],
)
def test_products_use_the_matrix_instruction_of_their_target(
    name: str, precision: Precision, instruction: str, tmp_path: Path
) -> None:
    text = assembly("gemm", compiled_for(name), precision, tmp_path)
    found = set(re.findall("v_mfma_[a-z0-9_]+", text))
    assert found == ({instruction} if instruction else set())


@pytest.mark.parametrize(
    ("name", "instruction"), [("gfx1200", "v_wmma_"), ("gfx1100", "v_wmma_"), ("gfx942", "v_mfma_")]
)
def test_matrix_instructions_are_absent_when_unknown(name: str, instruction: str, tmp_path: Path) -> None:
    """A newer member of a family has the family's macros, and perhaps not its instructions."""
    known, unknown = compiled_for(name), replace(amd_target("gfx1299"), name=name)
    assert not unknown.is_listed
    assert instruction in assembly("attention", known, Precision.FP16, tmp_path)
    assert instruction not in assembly("attention", unknown, Precision.FP16, tmp_path)


@pytest.mark.parametrize("name", ["gfx906", "sm_80"])
def test_spills_are_found_when_a_tile_needs_too_many_registers(name: str) -> None:
    target = compiled_for(name)
    constants = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 32, "WARPS_M": 2, "WARPS_N": 2, "WARPS_K": 1}
    ends = ("SPLIT", "ACTIVATION", "CONVOLUTION", "SEGMENT", "PACKED", "RESIDUAL", "BIAS", "BIAS_BY_SQUARE")
    constants |= {"STAGES": 2} | dict.fromkeys((*ends, "WHOLE_STEPS", "DIRECT"), 0)
    key = KernelKey("gemm", Precision.FP16, tuple(constants.items()))
    assert spilled(Kernel(key, 32 << 10, 4 * target.wave), target) > 0


@pytest.mark.parametrize("name", ["gfx1100", "sm_90"])
def test_compilation_fails_with_the_missing_constant(name: str) -> None:
    target = compiled_for(name)
    key = KernelKey("policy", Precision.FP16, (("ATTENTION_POLICY", 0),))
    with pytest.raises(CompilationError, match="ENTRIES"):
        spilled(Kernel(key, 0, 256), target)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernels compile for every target, and those that count keep to the registers. Needs no GPU."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from evaluator.cli import main
from evaluator.gpu.driver.compiler import AMD_FLAGS, KernelKey, source
from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.driver.target import Precision, Target, amd_target
from evaluator.gpu.inspect.clang import COMPILERS
from evaluator.gpu.inspect.resources import amd_assembly, measure, measure_all, unavailable
from evaluator.gpu.inspect.variants import AMD_TARGETS, NVIDIA_TARGETS, Variant, Variants, target_named

pytestmark = pytest.mark.kernels

TARGETS = (*AMD_TARGETS, *NVIDIA_TARGETS)

SIBLINGS = ("gfx908", "gfx90a", "gfx1151", "gfx1201")
"""Of gfx942, gfx1100 and gfx1200."""

NAMED = (
    "gfx9-generic",
    "gfx9-4-generic",
    "gfx10-1-generic",
    "gfx10-3-generic",
    "gfx11-generic",
    "gfx12-generic",
    "gfx90c",
    "gfx1250",
)
"""Targets that a user may name, and that get the kernels of others."""


def compiled_for(name: str, compiler: str = "") -> Target:
    """Skips the calling test where the target's compiler is absent."""
    target = target_named(name)
    reason = unavailable(target, compiler)
    if reason is not None:
        pytest.skip(f"{name} {compiler}: {reason}")
    return target


@cache
def variants() -> Variants:
    return Variants()


def kind(variant: Variant) -> object:
    """What forms are alike in: the tile of a matrix product and whether a norm was left to it, whether rows
    are split, all of attention."""
    key = variant.key
    match key.file:
        case "gemm":
            tile = [value for name, value in key.constants if name.startswith(("BLOCK", "WARPS"))]
            constants = dict(key.constants)
            return tile, constants["PACKED"] > 0, constants["FORMAT"], constants["NORM_PARTS"] > 0
        case "gemm_hopper":
            return [
                value
                for name, value in key.constants
                if name in ("BLOCK_N", "NORMALISE", "RESIDUAL", "FORMAT")
            ]
        case "rows":
            return dict(key.constants)["SPLIT"], dict(key.constants)["ROUND"]
        case "attention":
            return key
        case file if variant.hot:
            return file, key.constants
        case file:
            return file


def weight(variant: Variant) -> tuple[int, ...]:
    """Which of those takes the most registers: norms of residuals, convolutions with bias and activation,
    codes of 4 bits, the widest rows."""
    constants = dict(variant.key.constants)
    names = ("RESIDUAL_NORM", "ROW_SUMS", "CONVOLUTION", "BIAS", "ACTIVATION", "WIDTH", "PASSES")
    return (*(constants.get(name, 0) for name in names), -constants.get("PACKED", 0))


def hardest(listed: Iterable[Variant]) -> list[Variant]:
    """The one of each kind that takes the most registers."""
    return list({repr(kind(variant)): variant for variant in sorted(listed, key=weight)}.values())


def assert_in_registers(wanted: list[Variant], target: Target, compiler: str = "") -> None:
    assert wanted
    listed = [(variant, target) for variant in wanted]
    for variant, _, resources in measure_all(listed, compiler=compiler, jobs=1):
        assert not isinstance(resources, CompilationError), resources
        assert resources.waves >= 1, f"{variant.label}: no block fits on {target.name}: {resources}"
        assert not (variant.hot and resources.spilled), (
            f"{variant.label} spills on {target.name}: {resources}"
        )


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("name", TARGETS)
def test_no_hot_kernel_spills(name: str, precision: Precision) -> None:
    target = compiled_for(name)
    wanted = hardest(variants().all(target, precision))
    if precision is not Precision.FP16:
        wanted = [variant for variant in wanted if variant.hot]
    if precision is Precision.BF16 or name in SIBLINGS:
        # The same loops and tiles as fp16 with other conversions and matrix instructions, or the same code
        # but for the name of the target. The slow test compiles everything.
        gemm = [variant for variant in wanted if variant.key.file == "gemm"]
        wanted = [variant for variant in wanted if variant.key.file == "attention"] + gemm[-1:]
    assert_in_registers(wanted, target)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_products_of_the_largest_tile_do_not_spill_on_rdna_3(compiler: str) -> None:
    """These leave the fewest registers: a compiler that moves a step's products spills there first."""
    target = compiled_for("gfx1100", compiler)
    by_end: dict[object, Variant] = {}
    for variant in variants().used(target, Precision.FP16):
        constants = dict(variant.key.constants)
        if (constants.get("BLOCK_M"), constants.get("BLOCK_N")) == (128, 128):
            names = ("CONVOLUTION", "RESIDUAL", "BIAS", "INPUT_NORM", "RESIDUAL_NORM", "ROW_SUMS")
            by_end[tuple(constants[name] for name in names)] = variant
    assert_in_registers(list(by_end.values()), target, compiler)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", AMD_TARGETS)
def test_no_hot_kernel_spills_with_any_compiler(name: str, compiler: str) -> None:
    target = compiled_for(name, compiler)
    for precision in Precision:
        assert_in_registers(hardest(variants().all(target, precision)), target, compiler)


@pytest.mark.parametrize("name", NAMED)
def test_targets_that_get_the_kernels_of_others_compile(name: str) -> None:
    target = compiled_for(name)
    listed = variants().used(target, Precision.FP16)
    wanted = [
        next(each for each in listed if each.key.file == file) for file in ("gemm", "attention", "rows")
    ]
    assert_in_registers(wanted, target)


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
    name: str, precision: Precision, instruction: str
) -> None:
    target = compiled_for(name)
    listed = variants().used(target, precision)
    text, _ = amd_assembly(next(each for each in listed if each.key.file == "gemm"), target)
    found = set(re.findall("v_mfma_[a-z0-9_]+", text))
    assert found == ({instruction} if instruction else set())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("name", TARGETS)
def test_no_form_of_a_hot_kernel_spills(name: str, precision: Precision) -> None:
    target = compiled_for(name)
    assert_in_registers(variants().all(target, precision), target)


@pytest.mark.parametrize("name", ["gfx906", "sm_80"])
def test_a_spill_is_seen(name: str) -> None:
    target = compiled_for(name)
    constants = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 32, "WARPS_M": 2, "WARPS_N": 2, "WARPS_K": 1}
    ends = ("SPLIT", "ACTIVATION", "CONVOLUTION", "SEGMENT", "PACKED", "RESIDUAL", "BIAS", "BIAS_BY_SQUARE")
    constants |= {"STAGES": 2} | dict.fromkeys((*ends, "WHOLE_STEPS", "DIRECT"), 0)
    key = KernelKey("gemm", Precision.FP16, tuple(constants.items()))
    resources = measure(Variant(key, 32 << 10, 4 * target.wave), target)
    assert resources.spilled
    assert resources.spills > 0


@pytest.mark.parametrize("name", ["gfx1100", "sm_90"])
def test_what_does_not_compile_is_an_error_that_says_why(name: str) -> None:
    target = compiled_for(name)
    key = KernelKey("policy", Precision.FP16, (("ATTENTION_POLICY", 0),))
    with pytest.raises(CompilationError, match="ENTRIES"):
        measure(Variant(key, 0, 256), target)


@pytest.mark.parametrize(
    ("name", "instruction"), [("gfx1200", "v_wmma_"), ("gfx1100", "v_wmma_"), ("gfx942", "v_mfma_")]
)
def test_without_a_known_matrix_unit_its_instructions_are_not_used(
    name: str, instruction: str, tmp_path: Path
) -> None:
    """A newer member of a family has the family's macros, and perhaps not its instructions."""
    known, unknown = compiled_for(name), replace(amd_target("gfx1299"), name=name)
    assert not unknown.known
    (path := tmp_path / "attention.hip").write_text(source("attention"))

    def assembly(target: Target) -> str:
        variant = next(v for v in variants().used(target, Precision.FP16) if v.key.file == "attention")
        command = ["clang-19", "-x", "hip", f"--offload-arch={name}", "--cuda-device-only", "-S", "-o", "-"]
        command += ["-nogpuinc", "-nogpulib", *AMD_FLAGS, *variant.key.options, *target.options, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert instruction in assembly(known)
    assert instruction not in assembly(unknown)


def test_the_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    compiled_for("gfx1100")
    command = ["kernels", "--target", "gfx1100", "--precision", "fp32", "--kernel", "attention"]
    assert main(command) == 0
    assert "attention depth=32 " in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["kernel"], row["target"], row["hot"]) for row in rows} == {("attention", "gfx1100", True)}
    assert all(0 < row["waves"] <= row["most_waves"] and row["registers"] > 0 for row in rows)


def test_the_command_compares_the_compilers(capsys: pytest.CaptureFixture[str]) -> None:
    for compiler in COMPILERS:
        compiled_for("gfx1100", compiler)
    command = [
        "kernels",
        "--compilers",
        "--target",
        "gfx1100",
        "--precision",
        "fp32",
        "--kernel",
        "attention",
    ]
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    assert {row["compiler"] for row in json.loads(printed.out)} == set(COMPILERS)
    assert "gfx1100 rocm: 0 of 2 hot kernels spill" in printed.err


def test_the_command_says_what_an_unlisted_target_gets(capsys: pytest.CaptureFixture[str]) -> None:
    compiled_for("gfx11-generic")
    assert main(["kernels", "--target", "gfx11-generic", "--precision", "fp32", "--kernel", "attention"]) == 0
    assert "gfx11-generic: a family, for compiling only: the kernels of gfx1100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--target", "i386"], 2, "'i386' is not a target"),
        (["--jobs", "0"], 2, "--jobs must be at least 1"),
        (["--target", "gfx1100", "--kernel", "none"], 1, "0 compilations"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels", *arguments]) == status
    assert message in capsys.readouterr().err

# SPDX-License-Identifier: GPL-3.0-or-later
"""Resources of a kernel on a target: registers, spills, shared memory, occupancy. Compiles; needs no GPU.

For AMD targets with clang (clang.py), into a code object like hipRTC's; for NVIDIA's with NVRTC. The numbers
are those of the compilers. They do not know a launch's dynamic shared memory, so the occupancy is computed
here.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evaluator.gpu.driver.compiler import AMD_FLAGS, source
from evaluator.gpu.driver.device import CompilationError, DeviceError
from evaluator.gpu.driver.target import MatrixUnit, Target
from evaluator.gpu.inspect import clang
from evaluator.gpu.inspect.variants import Variant


@dataclass(frozen=True, slots=True)
class Resources:
    """registers: vector registers per thread. spills: spilled registers per thread (NVIDIA: bytes written and
    read). scratch_bytes: memory per thread outside the registers, including spills. shared_bytes: per block,
    static and dynamic. waves: resident per SIMD (NVIDIA: per scheduler, four per multiprocessor), limited by
    registers, shared memory and block size. most_waves: limit of the hardware."""

    registers: int
    spills: int
    scratch_bytes: int
    shared_bytes: int
    waves: int
    most_waves: int

    @property
    def spilled(self) -> bool:
        """True if the kernel uses memory besides registers; an array indexed at run time does so, too."""
        return self.spills > 0 or self.scratch_bytes > 0


def unavailable(target: Target, compiler: str = "") -> str | None:
    """Return why kernels cannot be compiled for a target here; None if they can.

    compiler: as in `measure`.
    """
    if target.name.startswith("gfx"):
        return clang.unavailable(target.name, compiler)
    try:
        from evaluator.gpu.driver import nvidia

        nvidia.compiler_version()
    except ImportError as error:
        return f"needs NVRTC (pip install cuda-bindings nvidia-cuda-nvrtc): {error}"
    except DeviceError as error:
        return str(error)
    return None


def measure(variant: Variant, target: Target, compiler: str = "") -> Resources:
    """Compile one variant. Raises CompilationError.

    compiler: for an AMD target, one of `clang.COMPILERS`; empty for the default.
    """
    if target.name.startswith("gfx"):
        with tempfile.TemporaryDirectory() as folder:
            return _measure_amd(variant, target, Path(folder) / "kernel.co", compiler)
    return _measure_nvidia(variant, target, (*variant.key.options, *target.options))


def measure_all(
    wanted: Sequence[tuple[Variant, Target]], *, compiler: str = "", jobs: int | None = None
) -> Iterator[tuple[Variant, Target, Resources | CompilationError]]:
    """Compile many concurrently and yield results in the order of `wanted`.

    compiler: as in `measure`. jobs: default one per core.
    """

    def one(each: tuple[Variant, Target]) -> Resources | CompilationError:
        try:
            return measure(*each, compiler)
        except CompilationError as error:
            return error

    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        for (variant, target), result in zip(wanted, pool.map(one, wanted), strict=True):
            yield variant, target, result


# --- AMD ----------------------------------------------------------------------------------------------------

_REMARK = re.compile(r"remark: +(?:<unknown>:0:0: +)?([^:\[]+?)(?: \[[^\]]*\])?: (\d+)")


def amd_assembly(variant: Variant, target: Target, compiler: str = "") -> tuple[str, Resources]:
    """Return a variant as the compiler's assembly, and its resources. Raises CompilationError."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.s"
        resources = _measure_amd(variant, target, out, compiler)
        return out.read_text("utf-8"), resources


def _measure_amd(variant: Variant, target: Target, out: Path, compiler: str) -> Resources:
    """Compile to a file. Raises CompilationError."""
    path = out.parent / f"{variant.key.file}.hip"
    path.write_text(source(variant.key.file), "utf-8")
    options = (*AMD_FLAGS, *variant.key.options, *target.options)
    try:
        report = clang.compile_file(path, target.name, options, out, compiler)
    except CompilationError as error:
        name = compiler or "clang"
        raise CompilationError(f"{name} cannot compile {variant.key} for {target.name}:\n{error}") from error
    return _amd_resources(variant, target, report)


def _amd_resources(variant: Variant, target: Target, report: str) -> Resources:
    """Parse the resources. report: the compiler's remarks."""
    found = {name: int(value) for name, value in _REMARK.findall(report)}
    try:
        shared = found["LDS Size"] + variant.shared_bytes
        most = _most_waves(target)
        registers = found["VGPRs"] + found.get("AGPRs", 0)
        waves = found["Occupancy"]
        if shared:
            waves = min(waves, _waves(target.lds_bytes // shared, variant.threads // target.wave, 4))
        return Resources(
            registers, found["VGPRs Spill"], found["ScratchSize"], shared, min(waves, most), most
        )
    except KeyError as error:
        raise CompilationError(f"clang did not report {error} of {variant.key}:\n{report}") from error


def _most_waves(target: Target) -> int:
    """Return the waves per SIMD, from LLVM's AMDGPU user guide."""
    if target.name.startswith("gfx9"):
        return 8 if target.unit is MatrixUnit.MFMA and target.name != "gfx908" else 10
    return 20 if target.name.startswith(("gfx101", "gfx10-1")) else 16


# --- NVIDIA -------------------------------------------------------------------------------------------------

_PTXAS_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_PTXAS_REGISTERS = re.compile(r"Used (\d+) registers")
_PTXAS_SHARED = re.compile(r"(\d+) bytes smem")

_REGISTERS, _RESERVED_SHARED, _MOST_BLOCKS = 65536, 1 << 10, 32
"""Limits of a multiprocessor of sm_80 and sm_90 (CUDA C++ Programming Guide, table of compute capabilities).
The driver reserves 1 KB of shared memory per block."""


def _measure_nvidia(variant: Variant, target: Target, options: Sequence[str]) -> Resources:
    from evaluator.gpu.driver.nvidia import compile_with_log

    text = source(variant.key.file)
    _, log = compile_with_log(text, variant.key.file, (*options, "--ptxas-options=-v"), target)
    spills, registers, static = (
        pattern.search(log) for pattern in (_PTXAS_SPILLS, _PTXAS_REGISTERS, _PTXAS_SHARED)
    )
    if spills is None or registers is None:
        raise CompilationError(f"ptxas did not report the registers of {variant.key}:\n{log}")
    used = int(registers[1])
    shared = variant.shared_bytes + (int(static[1]) if static else 0)
    waves_of_block = -(-variant.threads // 32)
    per_wave = -(-used * 32 // 256) * 256  # registers are allocated in units of 256
    most = 12 if target.name in ("sm_86", "sm_89") else 16
    blocks = min(
        _MOST_BLOCKS,
        _REGISTERS // (per_wave * waves_of_block),
        4 * most // waves_of_block,
        (target.shared_bytes + _RESERVED_SHARED) // (shared + _RESERVED_SHARED),
    )
    stack = int(spills[1])
    return Resources(
        used, int(spills[2]) + int(spills[3]), stack, shared, _waves(blocks, waves_of_block, 4), most
    )


def _waves(blocks: int, waves_of_block: int, simds: int) -> int:
    """Return the waves on the fullest of the SIMDs that share `blocks` blocks."""
    return -(-blocks * waves_of_block // simds)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Work of kernels on AMD GPUs, from clang's assembly and llvm-mca's scheduling models.

llvm-mca gives each instruction's cycles of the vector unit and of CDNA's matrix unit, and the time of a
sequence in one wave in order. It has no cycles for WMMA (a card's published rate replaces them) and, on some
targets, none for quarter-rate functions. It also treats each load as a wait once its register is overwritten.
So loads from memory are excluded from its sequence, and their latency is added when launches are timed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.driver.target import MatrixUnit, Precision, Target, amd_target
from evaluator.gpu.inspect.resources import amd_assembly
from evaluator.gpu.inspect.resources import unavailable as no_compiler
from evaluator.gpu.inspect.variants import Variant
from evaluator.gpu.model.assembly import amd_listing
from evaluator.gpu.model.cards import Card
from evaluator.gpu.model.code import Code, Work

_ANALYSER = "llvm-mca-19"
_ANALYSED_AS = {"gfx950": "gfx942"}
"""Targets that llvm-mca-19 does not know, and the one whose code and occupancy are taken instead. The matrix
unit's cycles are those of the card's rate."""

_MFMA_RATE = 512
"""FLOPs of gfx942's matrix unit per clock, in fp16."""

_FLOP_OF_PRODUCT = 2 * 16**3
_QUARTER_RATE = ("v_exp_", "v_rcp_", "v_rsq_", "v_log_", "v_sqrt_", "v_sin_", "v_cos_")
_FMA = ("v_fma_", "v_fmac_", "v_pk_fma_", "v_dual_fmac_", "v_dual_fmamk_", "v_fma_mix_")
_NOT_TIMED = ("s_wait", "s_barrier", "s_delay", "s_clause", "s_cbranch", "s_branch", "s_endpgm", "s_nop")
_BARRIERS = ("s_barrier", "s_barrier_wait")
_LOADS = ("global_load", "buffer_load", "flat_load")
_BYTES = {"b128": 16, "dwordx4": 16, "b96": 12, "dwordx3": 12, "b64": 8, "dwordx2": 8}
"""Bytes per lane by the suffix of a load's or store's name; all others occupy a bank for 4 bytes."""


def unavailable(target: Target) -> str | None:
    """Return why kernels cannot be analysed here; None if they can."""
    if shutil.which(_ANALYSER) is None:
        return f"needs {_ANALYSER} (apt-get install llvm-19)"
    return no_compiler(_analysed_as(target))


def _analysed_as(target: Target) -> Target:
    return amd_target(_ANALYSED_AS.get(target.name, target.name))


def code_of(variant: Variant, target: Target, card: Card) -> Code:
    """Compile and analyse a kernel. Raises CompilationError."""
    target = _analysed_as(target)
    text, resources = amd_assembly(variant, target)
    fma = target.matrix_unit(variant.key.precision) is MatrixUnit.FMA
    products = _FMA if fma else ("v_wmma_", "v_mfma_")
    listing = amd_listing(text, lambda instruction: instruction.startswith(products))
    return Code(
        _work(listing.loop, target, card, products, variant.key.precision),
        _work(listing.rest, target, card, products, variant.key.precision),
        resources,
    )


def _work(
    instructions: Sequence[str], target: Target, card: Card, products: tuple[str, ...], precision: Precision
) -> Work:
    if not instructions:
        return Work()
    scale = target.wave // 16 if target.wave == 64 else 1  # CDNA: cycles of 16 lanes, four to a wave
    timed = [each for each in instructions if not each.startswith(_NOT_TIMED)]
    pressure, _ = _analysed(tuple(timed), target.name)
    _, cycles = _analysed(tuple(each for each in timed if not each.startswith(_LOADS)), target.name)
    matrix = float(scale * pressure["HWXDL"])
    if target.name in _ANALYSED_AS.values():
        matrix *= _MFMA_RATE / card.matrix
    vector = float(scale * (pressure["HWVALU"] + pressure["HWTransVALU"]))
    quarter = sum(each.startswith(_QUARTER_RATE) for each in instructions)
    vector += 3 * scale * quarter
    latency = float(scale * cycles)
    wmma = sum(each.startswith("v_wmma_") for each in instructions)
    if wmma:
        matrix = wmma * _FLOP_OF_PRODUCT / card.matrix
        vector -= wmma  # llvm-mca counts one cycle for each
        latency += matrix
    mix = Counter(kind_of(each) for each in instructions)
    return Work(
        matrix=float(matrix),
        vector=float(vector),
        shared=sum(target.wave * width(each) for each in instructions if each.startswith("ds_")) / 128,
        loaded=float(sum(target.wave * width(each) for each in instructions if each.startswith(_LOADS))),
        latency=latency,
        loads=any(each.startswith(_LOADS) for each in instructions),
        products=sum(each.startswith(products) for each in instructions),
        steps=max(1, sum(each.split()[0] in _BARRIERS for each in instructions)),
        mix=mix,
    )


def width(instruction: str) -> int:
    """Return the bytes per lane of a load or store, as banks and caches count them."""
    name = instruction.split()[0]
    each = next((size for ending, size in _BYTES.items() if ending in name), 4)
    return 2 * each if "2addr" in name or "read2" in name or "write2" in name else each


def kind_of(instruction: str) -> str:
    """Return matrix, vector, shared, memory or scalar."""
    if instruction.startswith(("v_wmma_", "v_mfma_")):
        return "matrix"
    if instruction.startswith("v_"):
        return "vector"
    if instruction.startswith("ds_"):
        return "shared"
    return "scalar" if instruction.startswith("s_") else "memory"


@cache
def _analysed(instructions: tuple[str, ...], processor: str) -> tuple[Counter[str], int]:
    """Return the cycles of each unit and of one wave in order, by llvm-mca. Raises CompilationError."""
    found: Counter[str] = Counter()
    if not instructions:
        return found, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sequence.s"
        path.write_text("\n".join(instructions) + "\n", "utf-8")
        command = [_ANALYSER, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={processor}", "-iterations=1", "-json"]
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompilationError(f"{_ANALYSER} cannot analyse code for {processor}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    names = result["TargetInfo"]["Resources"]
    region = result["CodeRegions"][0]
    for entry in region["ResourcePressureView"]["ResourcePressureInfo"]:
        if entry["InstructionIndex"] < len(region["Instructions"]):  # the rest are sums
            found[names[entry["ResourceIndex"]]] += entry["ResourceUsage"]
    return found, int(region["SummaryView"]["TotalCycles"])

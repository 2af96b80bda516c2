# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail if a kernel does not compile or a hot one spills registers: `python -m scripts.spills`. Needs no GPU.

clang compiles for AMD and NVRTC for NVIDIA. Further compilers of amd_compilers.py that are installed compile
the largest products of gfx1100. WAVEFRONT_TEST_CACHE names a folder that remembers which kernels passed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import AMD_FLAGS, KernelKey, source
from evaluator.backends.gpu.driver.device import CompilationError, DeviceError
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.plan import fp8, hopper
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import Launch
from evaluator.backends.gpu.plan.quantised import WeightFormat, rounded_network
from evaluator.backends.gpu.plan.tiles import Choice, Chooser, candidates, model_chooser
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import AttentionBody
from scripts import amd_compilers

nvidia: Any
try:
    from evaluator.backends.gpu.driver import nvidia
except ImportError:
    nvidia = None

AMD = [f"gfx{name}" for name in (906, 908, "90a", 942, 950, 1030, 1100, 1151, 1200, 1201)]
FAMILIES = [f"gfx{each}-generic" for each in ("9", "9-4", "10-1", "10-3", "11", "12")]
FAMILIES += ["gfx90c", "gfx1250"]
TARGETS = ["sm_90", "sm_80", *AMD, *FAMILIES]
SIBLINGS = ("gfx908", "gfx90a", "gfx1151", "gfx1201")
"""Targets with the code of gfx942, gfx1100 and gfx1200, apart from the name."""
NETWORKS = ("t82", "bt4", "t80", "resnet-64x4", "resnet-classical")
LIGHT = ("expand", "policy", "outputs", "squeeze_excite")
"""Kernels with a negligible share of the time. All others are hot."""
PROCESSORS = 64
_REMARK = re.compile(r"remark: +(?:<unknown>:0:0: +)?([^:\[]+?)(?: \[[^\]]*\])?: (\d+)")
_PTXAS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


class Kernel(NamedTuple):
    key: KernelKey
    shared_bytes: int
    threads: int


def target_named(name: str) -> Target:
    return amd_target(name) if name.startswith("gfx") else nvidia_target(int(name[3:-1]), int(name[-1]))


@cache
def plans(precision: Precision) -> list[tuple[Plan, bool]]:
    """Return plans of two layers of each network, and whether they need e4m3."""
    target = target_named("sm_90")
    choose = model_chooser(target, precision, PROCESSORS)
    shapes = [SHAPES[name] for name in NETWORKS]
    networks = [random_network(replace(s, layers=min(s.layers, 2), blocks=min(s.blocks, 1))) for s in shapes]
    made = [(Plan(each, target, precision, choose, blocks=PROCESSORS), False) for each in networks]
    for each in networks if precision is Precision.FP16 else ():
        if isinstance(each.body, AttentionBody):
            forms = [(rounded_network(each, form), form) for form in WeightFormat]
            made += [(Plan(rounded, target, precision, choose, form), False) for rounded, form in forms]
            made += [(Plan(each, target, precision, choose, rounded=fp8.rounded_network(each)), True)]
    return made


def _with(target: Target, precision: Precision, choose: Chooser, sizes: Sequence[int]) -> Iterator[Kernel]:
    for plan, e4m3 in plans(precision):
        if not (e4m3 and target.no_e4m3):
            plan = replace(plan, target=target, choose=choose)  # keeps the packed weights
            for size in sizes:
                single = plan.persistent_programs(size) if target.persistent else []
                for program in (plan.program(size), *single):
                    launches = (step for step in program.steps if isinstance(step, Launch))
                    yield from (Kernel(each.kernel, each.shared_bytes, each.threads) for each in launches)


def _sorted(kernels: Iterable[Kernel]) -> list[Kernel]:
    return sorted(set(kernels), key=lambda each: (each.key.file in LIGHT, each.key.file, each.key.constants))


def used(target: Target, precision: Precision) -> list[Kernel]:
    """Return the kernels that run without measurements."""
    sizes = (1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024)
    return _sorted(_with(target, precision, model_chooser(target, precision, PROCESSORS), sizes))


def every(target: Target, precision: Precision) -> list[Kernel]:
    """Return the kernels that tuning may choose: every tile with every epilogue, and all of `used`."""
    found, turn, turns = set(used(target, precision)), 0, 1
    while turn < turns:

        def choose(product: Product, turn: int = turn) -> Choice:
            nonlocal turns
            tiles = candidates(product, target, precision, packed=product.weight_bits > 0)
            # The number of splits of k does not change the code, only whether it is split.
            different: dict[object, Choice] = {(each.tile, each.splits > 1): each for each in tiles}
            for each in hopper.candidates(product, target, precision):
                different[each] = Choice(None, hopper=each)
            turns = max(turns, len(different))
            return list(different.values())[turn % len(different)]

        found |= set(_with(target, precision, choose, (1, 32, 256)))  # one size per order of work in a plan
        turn += 1
    return _sorted(found)


def hardest(listed: Iterable[Kernel]) -> list[Kernel]:
    """Return the kernel with the most registers of each kind: of each tile, of all of attention."""

    def weight(kernel: Kernel) -> tuple[int, ...]:
        constants = dict(kernel.key.constants)
        names = ("RESIDUAL_NORM", "ROW_SUMS", "CONVOLUTION", "BIAS", "ACTIVATION", "WIDTH", "PASSES")
        return (*(constants.get(name, 0) for name in names), -constants.get("PACKED", 0))

    def kind(file: str, constants: dict[str, int]) -> str:
        if file == "gemm":
            tile = [value for name, value in constants.items() if name.startswith(("BLOCK", "WARPS"))]
            tile += [constants["PACKED"] > 0, constants["FORMAT"], constants["NORM_PARTS"] > 0]
            return f"gemm {tile}"
        names = {"gemm_hopper": ("BLOCK_N", "NORMALISE", "RESIDUAL", "FORMAT"), "rows": ("SPLIT", "ROUND")}
        chosen = () if file in LIGHT else names.get(file, tuple(constants))
        return f"{file} {[constants.get(name) for name in chosen]}"

    return list({kind(k.key.file, dict(k.key.constants)): k for k in sorted(listed, key=weight)}.values())


def wanted(target: Target, precision: Precision, compiler: str, complete: bool) -> list[Kernel]:
    """Return what to compile. Precisions and targets whose code differs little have few kernels."""
    if target.name in FAMILIES:
        files = ("gemm", "attention", "rows") if precision is Precision.FP16 else ()
        return [next(k for k in used(target, precision) if k.key.file == file) for file in files]
    if complete:
        return hardest(every(target, precision)) if compiler else every(target, precision)
    if compiler:  # the products that leave the fewest registers
        ends = ("CONVOLUTION", "RESIDUAL", "BIAS", "INPUT_NORM", "RESIDUAL_NORM", "ROW_SUMS")
        named = target.name == "gfx1100" and precision is Precision.FP16
        forms = [(k, dict(k.key.constants)) for k in (used(target, precision) if named else ())]
        large = [(k, c) for k, c in forms if (c.get("BLOCK_M"), c.get("BLOCK_N")) == (128, 128)]
        return list({tuple(c[name] for name in ends): k for k, c in large}.values())
    listed = hardest(every(target, precision))
    if precision is not Precision.FP16:
        listed = [k for k in listed if k.key.file not in LIGHT]
    if precision is Precision.BF16 or target.name in SIBLINGS:
        products = [k for k in listed if k.key.file == "gemm"]
        listed = [k for k in listed if k.key.file == "attention"] + products[-1:]
    return listed


def unavailable(target: Target, compiler: str = "") -> str:
    """Return why a compiler cannot compile for a target; empty if it can."""
    if target.name.startswith("gfx"):
        return amd_compilers.unavailable(target.name, compiler)
    try:
        return "" if nvidia and nvidia.compiler_version() else "needs cuda-bindings and nvidia-cuda-nvrtc"
    except DeviceError as error:
        return str(error)


def spilled(kernel: Kernel, target: Target, compiler: str = "") -> int:
    """Compile, and return the registers (NVIDIA: bytes) in memory. Raises CompilationError.

    An array indexed at run time is in memory, too.
    """
    options = (*kernel.key.options, *target.options)
    if not target.name.startswith("gfx"):
        flags = (*options, "--ptxas-options=-v")
        _, log = nvidia.compile_with_log(source(kernel.key.file), kernel.key.file, flags, target)
        if (found := _PTXAS.search(log)) is None:
            raise CompilationError(f"ptxas did not report the registers of {kernel.key}: {log}")
        return sum(map(int, found.groups()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kernel.key.file}.hip"
        path.write_text(source(kernel.key.file), "utf-8")
        out = path.with_suffix(".co")
        report = amd_compilers.compile_file(path, target.name, (*AMD_FLAGS, *options), out, compiler)
    facts = {name: int(value) for name, value in _REMARK.findall(report)}
    if facts["LDS Size"] + kernel.shared_bytes > target.lds_bytes:
        raise CompilationError(
            f"{kernel.key} needs more than {target.lds_bytes} bytes of LDS on {target.name}"
        )
    return facts["VGPRs Spill"] + facts["ScratchSize"]


def problem(kernel: Kernel, target: Target, compiler: str) -> str:
    """Return what is wrong with a kernel; empty if nothing is."""
    amd = target.name.startswith("gfx")
    version = amd_compilers.version(target.name, compiler) if amd else nvidia.compiler_version()
    parts = (source(kernel.key.file), str(kernel), target.name, *target.options, *AMD_FLAGS, version)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    folder = os.environ.get("WAVEFRONT_TEST_CACHE")
    if folder and (passed := Path(folder, "spills", digest)).exists():
        return ""
    try:
        count = spilled(kernel, target, compiler)
    except CompilationError as error:
        return f"{kernel.key} does not compile for {target.name} {compiler}:\n{error}"
    if count and kernel.key.file not in LIGHT:
        return f"{kernel.key} spills {count} on {target.name} {compiler}"
    if folder:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    return ""


def check(name: str, complete: bool) -> tuple[int, list[str]]:
    """Compile for a target, and return the number of kernels and the problems."""
    target, checked, problems = target_named(name), 0, []
    for compiler in ("", *(amd_compilers.COMPILERS if name in AMD else ())):
        if reason := unavailable(target, compiler):
            print(f"{name} {compiler or 'default'}: not checked: {reason}", file=sys.stderr)
            continue
        for precision in Precision:
            kernels = wanted(target, precision, compiler, complete)
            checked += len(kernels)
            problems += [found for kernel in kernels if (found := problem(kernel, target, compiler))]
    return checked, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every form of every kernel, by every compiler")
    parser.add_argument("--target", action="append", help="such as gfx1100; may be repeated (default: all)")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(partial(check, complete=arguments.all), arguments.target or TARGETS))
    checked, problems = sum(each[0] for each in results), [p for each in results for p in each[1]]
    print(*problems, f"{checked} kernels checked, {len(problems)} with problems", sep="\n")
    return 1 if problems or not checked else 0


if __name__ == "__main__":
    sys.exit(main())

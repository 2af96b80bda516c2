# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator kernels`: registers, spills, shared memory and occupancy of the kernels per target."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from evaluator.commands import predictions
from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.inspect.resources import Resources, measure_all, unavailable
from evaluator.gpu.inspect.variants import AMD_TARGETS, NVIDIA_TARGETS, Variant, Variants, target_named

HELP = (
    "compile the kernels for every target, without a GPU; print registers, spills, shared memory and "
    "occupancy. The exit status is 1 if a kernel does not compile or an important one spills"
)

_LABEL_COLUMNS, _CELL_COLUMNS = 46, 19


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help=f"target; may be repeated (default: {', '.join((*AMD_TARGETS, *NVIDIA_TARGETS))})",
    )
    parser.add_argument(
        "--precision",
        action="append",
        choices=[precision.value for precision in Precision],
        help="precision; may be repeated (default: all)",
    )
    parser.add_argument(
        "--kernel",
        action="append",
        metavar="NAME",
        help="kernel, such as gemm; may be repeated (default: all)",
    )
    parser.add_argument(
        "--all-tiles",
        action="store_true",
        help="also compile variants that only tuning would choose: every tile with every activation",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="concurrent compilations (default: one per core)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    predictions.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.predict:
        return predictions.run(arguments)
    try:
        targets = [target_named(name) for name in arguments.target or (*AMD_TARGETS, *NVIDIA_TARGETS)]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.jobs is not None and arguments.jobs < 1:
        print("error: --jobs must be at least 1", file=sys.stderr)
        return 2
    missing = {target.name: reason for target in targets if (reason := unavailable(target))}
    for name, reason in missing.items():
        print(f"{name}: {reason}", file=sys.stderr)
    targets = [target for target in targets if target.name not in missing]
    for target in targets:
        if target.note or target.problem:
            print(f"{target.name}: {target.problem or target.note}", file=sys.stderr)
    precisions = [Precision(name) for name in arguments.precision or (each.value for each in Precision)]
    variants = Variants()
    listed = variants.all if arguments.all_tiles else variants.used
    wanted = [
        (variant, target)
        for precision in precisions
        for target in targets
        for variant in listed(target, precision)
        if arguments.kernel is None or variant.key.file in arguments.kernel
    ]
    compiled = track(
        measure_all(wanted, jobs=arguments.jobs),
        "compiling",
        total=len(wanted),
        console=Console(stderr=True),
        transient=True,
    )
    found: list[tuple[Variant, Target, Resources]] = []
    failures: list[CompilationError] = []
    for variant, target, result in compiled:
        if isinstance(result, CompilationError):
            failures.append(result)
        else:
            found.append((variant, target, result))
    if arguments.json:
        print(json.dumps([_facts(*each) for each in found]))
    else:
        for precision in precisions:
            _print([each for each in found if each[0].key.precision is precision], targets)
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    spilling = sum(variant.hot and result.spilled for variant, _, result in found)
    summary = f"{len(wanted)} compilations, {len(failures)} failed; {spilling} hot kernels spill"
    print(summary, file=sys.stderr)
    # Without any compiled kernel, nothing was checked.
    return 1 if failures or spilling or not wanted else 0


def _facts(variant: Variant, target: Target, resources: Resources) -> dict[str, Any]:
    key = variant.key
    return {
        "kernel": key.file,
        "precision": key.precision.value,
        "constants": dict(key.constants),
        "hot": variant.hot,
        "target": target.name,
        "threads": variant.threads,
        **asdict(resources),
    }


def _print(found: list[tuple[Variant, Target, Resources]], targets: list[Target]) -> None:
    """Print a row per kernel and a column per target, in as many tables as the terminal's width needs."""
    console = Console(markup=False, highlight=False)
    cells: dict[KernelKey, dict[str, Resources]] = {}
    labels: dict[KernelKey, str] = {}
    for variant, target, resources in found:
        cells.setdefault(variant.key, {})[target.name] = resources
        labels[variant.key] = variant.label
    side_by_side = max(1, (console.width - _LABEL_COLUMNS) // _CELL_COLUMNS)
    for first in range(0, len(targets) if found else 0, side_by_side):
        shown = targets[first : first + side_by_side]
        precision = found[0][0].key.precision
        title = f"{precision.value}: registers, spills, shared memory, waves on a SIMD"
        table = Table("kernel", title=title, title_justify="left")
        for target in shown:
            unit = target.matrix_unit(precision)
            table.add_column(f"{target.name}\n{unit.value.split()[0]}", justify="right", no_wrap=True)
        for key, by_target in cells.items():
            if any(target.name in by_target for target in shown):
                table.add_row(labels[key], *(_cell(by_target.get(target.name)) for target in shown))
        console.print(table)


def _cell(resources: Resources | None) -> Text:
    if resources is None:
        return Text("-", style="dim")
    spills = resources.spills or ("scratch" if resources.scratch_bytes else 0)
    shared = f"{resources.shared_bytes / 1024:.0f}K" if resources.shared_bytes >= 1024 else "0"
    text = f"{resources.registers:3} {spills} {shared:>4} {resources.waves:2}/{resources.most_waves}"
    return Text(text, style="bold red" if resources.spilled else "")

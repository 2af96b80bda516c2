# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator kernels`: registers, spills, shared memory and occupancy of the kernels per target."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.inspect.clang import COMPILERS
from evaluator.gpu.inspect.resources import Resources, measure_all, unavailable
from evaluator.gpu.inspect.variants import AMD_TARGETS, NVIDIA_TARGETS, Variant, Variants, target_named
from protocol.host.extras import install

HELP = (
    "compile the kernels for every target, without a GPU; print registers, spills, shared memory and "
    "occupancy. The exit status is 1 if a kernel does not compile or an important one spills"
)

_LABEL_COLUMNS, _CELL_COLUMNS = 46, 19


@dataclass(frozen=True, slots=True)
class _Column:
    """compiler: one of COMPILERS; empty for the target's default."""

    target: Target
    compiler: str

    def __str__(self) -> str:
        return f"{self.target.name} {self.compiler}".rstrip()


class _Found(NamedTuple):
    variant: Variant
    column: _Column
    resources: Resources


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
        "--compilers",
        action="store_true",
        help=f"compile for AMD with each of {', '.join(COMPILERS)} that is installed, and compare them "
        f"({install('amd-check')})",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="concurrent compilations (default: one per core)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        targets = [target_named(name) for name in arguments.target or (*AMD_TARGETS, *NVIDIA_TARGETS)]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.jobs is not None and arguments.jobs < 1:
        print("error: --jobs must be at least 1", file=sys.stderr)
        return 2
    columns = _columns(targets, arguments.compilers)
    targets = [target for target in targets if any(target == each.target for each in columns)]
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
        _compile(wanted, columns, arguments.jobs),
        "compiling",
        total=sum(target == column.target for _, target in wanted for column in columns),
        console=Console(stderr=True),
        transient=True,
    )
    found: list[_Found] = []
    failures: list[CompilationError] = []
    for variant, column, result in compiled:
        if isinstance(result, CompilationError):
            failures.append(result)
        else:
            found.append(_Found(variant, column, result))
    if arguments.json:
        print(json.dumps([_facts(each) for each in found]))
    else:
        for precision in precisions:
            _print([each for each in found if each.variant.key.precision is precision], columns)
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    spilling = [each.column for each in found if each.variant.hot and each.resources.spilled]
    count = len(found) + len(failures)
    print(f"{count} compilations, {len(failures)} failed; {len(spilling)} hot kernels spill", file=sys.stderr)
    if arguments.compilers:
        for column in columns:
            checked = sum(each.variant.hot for each in found if each.column == column)
            print(f"{column}: {spilling.count(column)} of {checked} hot kernels spill", file=sys.stderr)
    # Without any compiled kernel, nothing was checked.
    return 1 if failures or spilling or not wanted else 0


def _columns(targets: Sequence[Target], compare: bool) -> list[_Column]:
    """Return the targets with each of their compilers, and print which are missing.

    compare: with all named compilers instead of the default one.
    """
    columns = []
    for target in targets:
        for compiler in COMPILERS if compare and target.name.startswith("gfx") else ("",):
            column = _Column(target, compiler)
            if reason := unavailable(target, compiler):
                print(f"{column}: {reason}", file=sys.stderr)
            else:
                columns.append(column)
    return columns


def _compile(
    wanted: Sequence[tuple[Variant, Target]], columns: Sequence[_Column], jobs: int | None
) -> Iterator[tuple[Variant, _Column, Resources | CompilationError]]:
    """Compile each kernel for its target with the compilers of that target."""
    for compiler in dict.fromkeys(column.compiler for column in columns):
        able = {column.target for column in columns if column.compiler == compiler}
        part = [each for each in wanted if each[1] in able]
        for variant, target, result in measure_all(part, compiler=compiler, jobs=jobs):
            yield variant, _Column(target, compiler), result


def _facts(found: _Found) -> dict[str, Any]:
    key = found.variant.key
    compiler = found.column.compiler
    return {
        "kernel": key.file,
        "precision": key.precision.value,
        "constants": dict(key.constants),
        "hot": found.variant.hot,
        "target": found.column.target.name,
        **({"compiler": compiler} if compiler else {}),
        "threads": found.variant.threads,
        **asdict(found.resources),
    }


def _print(found: Sequence[_Found], columns: Sequence[_Column]) -> None:
    """Print a row per kernel and a column per target and compiler, in as many tables as the terminal's width
    needs."""
    console = Console(markup=False, highlight=False)
    cells: dict[KernelKey, dict[_Column, Resources]] = {}
    labels: dict[KernelKey, str] = {}
    for each in found:
        key = each.variant.key
        cells.setdefault(key, {})[each.column] = each.resources
        labels[key] = each.variant.label
    side_by_side = max(1, (console.width - _LABEL_COLUMNS) // _CELL_COLUMNS)
    for first in range(0, len(columns) if found else 0, side_by_side):
        shown = columns[first : first + side_by_side]
        precision = found[0].variant.key.precision
        title = f"{precision.value}: registers, spills, shared memory, waves on a SIMD"
        table = Table("kernel", title=title, title_justify="left")
        for column in shown:
            unit = column.target.matrix_unit(precision).value.split()[0]
            table.add_column(f"{column}\n{unit}", justify="right", no_wrap=True)
        for key, by_column in cells.items():
            if any(column in by_column for column in shown):
                table.add_row(labels[key], *(_cell(by_column.get(column)) for column in shown))
        console.print(table)


def _cell(resources: Resources | None) -> Text:
    if resources is None:
        return Text("-", style="dim")
    spills = resources.spills or ("scratch" if resources.scratch_bytes else 0)
    shared = f"{resources.shared_bytes / 1024:.0f}K" if resources.shared_bytes >= 1024 else "0"
    text = f"{resources.registers:3} {spills} {shared:>4} {resources.waves:2}/{resources.most_waves}"
    return Text(text, style="bold red" if resources.spilled else "")

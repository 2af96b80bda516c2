# SPDX-License-Identifier: GPL-3.0-or-later
"""Bank conflicts of shared memory, counted from the addresses of kernels in the instruction emulator.

tests/emulator/test_banks.py runs blocks of these kernels and compares the table with its counts.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Target

TABLE = Path(__file__).with_name("banks.json")
"""By a target's matrix unit, then by `layout_of`: LDS cycles relative to those of the bytes alone, in the
loop over products and outside of it."""


def layout_of(key: KernelKey) -> str:
    """Return what determines the shared memory addresses of a kernel's lanes."""
    constants = dict(key.constants)
    if key.file == "gemm":
        m, n, k = (constants[f"BLOCK_{axis}"] for axis in "MNK")
        waves = "*".join(str(constants[f"WARPS_{axis}"]) for axis in "MNK")
        return f"gemm {'direct ' * constants['DIRECT']}{m}x{n}x{k} {waves}"
    if key.file == "attention":
        return f"attention {constants['DEPTH']}"
    return key.file


def conflicts(key: KernelKey, target: Target) -> tuple[float, float]:
    """Return the factors on a kernel's shared memory cycles in the loop over products and outside of it; 1 if
    nothing was counted."""
    table = _table().get(target.matrix_unit(key.precision).value, {})
    return table.get(layout_of(key), (1.0, 1.0))


@cache
def _table() -> dict[str, dict[str, tuple[float, float]]]:
    table: dict[str, dict[str, list[float]]] = json.loads(TABLE.read_text("utf-8"))
    return {unit: {name: (loop, rest) for name, (loop, rest) in of.items()} for unit, of in table.items()}

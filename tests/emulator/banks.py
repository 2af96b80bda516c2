# SPDX-License-Identifier: GPL-3.0-or-later
"""Conflicts of shared memory's banks, counted from the addresses that a kernel's lanes really use.

`python -m tests.emulator.banks` counts those of every tile of the products and of attention for every matrix
unit, and writes the table that evaluator/gpu/model/banks.py reads.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.model.banks import TABLE, layout_of
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.products.launches import linear
from evaluator.gpu.plan.products.linear_layer import Linear
from evaluator.gpu.plan.program import Buffer, Launch, Program
from evaluator.gpu.plan.steps import attention
from evaluator.gpu.plan.tiles import Choice, candidates, model_chooser
from evaluator.network.spec import Activation, FloatArray
from tests.emulator.emulator import TOO_LONG, Block, Emulator
from tests.emulator.emulator import Program as Loaded
from tests.emulator.instructions import SharedAccess
from tests.emulator.steps import run
from tests.emulator.strategy import Emulation
from tests.hip_runtime import standin

UNITS = ("gfx1100", "gfx1201", "gfx942")
"""A target for each matrix unit."""

DEPTHS = (32, 64)
_BANKS, _PASS_BYTES = 32, 128
_STEPS = 2
_READ_OF_CDNA = np.array([*range(4), *range(20, 24), *range(4, 8), *range(16, 20)])
_READ_OF_CDNA = np.concatenate([first + _READ_OF_CDNA for first in (0, 8, 32, 40)])
"""Lanes in the order in which gfx942 serves a read of 16 bytes each, 8 in a pass (AMD, Composable Kernel,
"Understanding AMD GPU LDS and bank conflicts")."""


class CountingEmulator(Emulator):
    """Counts the cycles of shared memory. taken: with conflicts; least: what all lanes' bytes take at 128 a
    cycle. In a pass lanes move 128 bytes together, neighbouring ones but in `_READ_OF_CDNA`, and it takes a
    cycle for each different word in its fullest bank."""

    def __init__(self, target: str) -> None:
        super().__init__(target, check_races=False)
        self.taken = self.least = 0.0
        self._accesses: dict[int, SharedAccess | None] = {}

    def _run(self, program: Loaded, block: Block, wave: int, executed: ctypes.c_uint64) -> bool:
        while True:
            address = block.address(wave)
            if program.code.base <= address < program.code.base + program.code.size:
                if address not in self._accesses:
                    self._accesses[address] = self.translator.shared_access(address)
                access = self._accesses[address]
                if access is not None:
                    self._count(access, block, wave)
            stopped = self.advance(program, block, wave, executed, 1)
            if stopped != TOO_LONG:
                return stopped == 0

    def _count(self, access: SharedAccess, block: Block, wave: int) -> None:
        lanes = self.translator.wave
        if not access.offsets:
            self.taken, self.least = self.taken + lanes * 4 / 128, self.least + lanes * 4 / 128
            return
        active = block.active(wave)
        registers = block.vectors[wave].reshape(256, lanes)[access.address]
        if lanes == 64 and access.size == 16 and "READ" in access.name:
            registers, active = registers[_READ_OF_CDNA], active[_READ_OF_CDNA]
        for offset in access.offsets:
            self.least += lanes * access.size / 128
            self.taken += cycles((registers + np.uint32(offset))[active], access.size)


def cycles(addresses: NDArray[np.uint32], size: int) -> int:
    """Of one access by lanes at these byte addresses, `size` bytes each."""
    lanes, words = _PASS_BYTES // size, size // 4
    total = 0
    for first in range(0, len(addresses), lanes):
        of_pass = np.unique(addresses[first : first + lanes, None] // 4 + np.arange(words, dtype=np.uint32))
        total += int(np.bincount(of_pass % _BANKS, minlength=_BANKS).max())
    return total


@dataclass(frozen=True, slots=True)
class Counted:
    """programs: one launch each, of one block; the second has `_STEPS` more turns of the loop, if there are
    two."""

    layout: str
    programs: tuple[Program, ...]


def layouts(device: Device, *, all_tiles: bool) -> Iterator[Counted]:
    """Products by tile, attention by depth. all_tiles: not the first only."""
    target, precision = device.info.target, Precision.FP16
    product = Product(128, 128, 1024, Activation.NONE)
    tiles = [choice for choice in candidates(product, target, precision) if choice.splits == 1]
    for choice in tiles if all_tiles else tiles[:1]:
        yield _counted(*(_product(device, choice, steps) for steps in (_STEPS, 2 * _STEPS)))
    for depth in DEPTHS if all_tiles else DEPTHS[:1]:
        made = ProgramBuilder(1, target, precision, model_chooser(target, precision, 1))
        bias = made.matrix("bias", 1, 4096)
        attention(made, made.matrix("qkv", 64, 3 * depth), 1, depth, bias, "attention")
        yield _counted(made.program)


def _product(device: Device, choice: Choice, steps: int) -> Program:
    tile = choice.tile
    assert tile is not None
    target, precision = device.info.target, Precision.FP16
    made = ProgramBuilder(1, target, precision, lambda _: choice)
    weights = _normal(tile.block_n, steps * tile.block_k)
    layer = Linear("layer", tile.block_n, pack.matrix(weights, precision), None, Activation.NONE)
    linear(made, layer, made.matrix("a", tile.block_m, steps * tile.block_k), "out")
    return made.program


def _counted(*programs: Program) -> Counted:
    launch = programs[0].steps[0]
    assert isinstance(launch, Launch)
    return Counted(layout_of(launch.kernel), programs)


def count(device: Device, runtime: standin.Runtime, counted: Counted) -> tuple[float, float]:
    """Cycles taken for each of the least, in the loop over products and outside of it."""
    cycles_of = [_run(device, runtime, program) for program in counted.programs]
    taken, least = cycles_of[0]
    if len(cycles_of) == 1:
        return round(taken / least, 2), round(taken / least, 2)
    loop_taken, loop_least = (more - some for more, some in zip(cycles_of[1], cycles_of[0], strict=True))
    rest = (taken - loop_taken) / (least - loop_least)
    return round(loop_taken / loop_least, 2), round(rest, 2)


def _run(device: Device, runtime: standin.Runtime, program: Program) -> tuple[float, float]:
    emulator = CountingEmulator(device.info.target.name)
    runtime.set_strategy(Emulation(emulator=lambda _: emulator))
    launch = program.steps[0]
    assert isinstance(launch, Launch)
    buffers = (argument for argument in launch.arguments if isinstance(argument, Buffer))
    names = {buffer.name for buffer in buffers if buffer.name in program.work}
    run(device, program, {name: np.zeros(program.work[name], np.uint8) for name in names})
    return emulator.taken, emulator.least


def _normal(*shape: int) -> FloatArray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def main() -> None:
    from tests.evaluator.gpu.fibers import open_amd

    with tempfile.TemporaryDirectory() as folder:
        runtime = standin.load(standin.build(Path(folder) / "rocm"))
        table: dict[str, dict[str, tuple[float, float]]] = {}
        for name in UNITS:
            runtime.reset(name)
            device = open_amd()
            unit = device.info.target.matrix_unit(Precision.FP16).value
            found = layouts(device, all_tiles=True)
            table[unit] = {each.layout: count(device, runtime, each) for each in found}
            print(unit, table[unit], flush=True)
        TABLE.write_text(json.dumps(table, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""Conflicts of shared memory's banks, counted from the addresses that a kernel's lanes really use.

`python -m tests.emulator.banks` counts those of every tile of the products and of attention for every matrix
unit, and writes the table that evaluator/gpu/model/banks.py reads.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.model.banks import TABLE, layout_of
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.products import Linear, linear
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


class CountingEmulator(Emulator):
    """Counts the cycles of shared memory. taken: with conflicts; least: what all lanes' bytes take at 128 a
    cycle. In a pass neighbouring lanes move 128 bytes together, and a pass takes a cycle for each different
    word in its fullest bank."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
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


def programs(device: Device, *, all_tiles: bool) -> Iterator[Program]:
    """One launch each, of one block: products by tile, attention by depth. all_tiles: not the first only."""
    target, precision = device.info.target, Precision.FP16
    product = Product(128, 128, 1024, Activation.NONE)
    tiles = [choice for choice in candidates(product, target, precision) if choice.splits == 1]
    for choice in tiles if all_tiles else tiles[:1]:
        tile = choice.tile
        assert tile is not None

        def choose(_: Product, choice: Choice = choice) -> Choice:
            return choice

        made = ProgramBuilder(1, target, precision, choose)
        weights = _normal(tile.block_n, 2 * tile.block_k)
        layer = Linear("layer", tile.block_n, pack.matrix(weights, precision), None, Activation.NONE)
        linear(made, layer, made.matrix("a", tile.block_m, 2 * tile.block_k), "out")
        yield made.program
    for depth in DEPTHS if all_tiles else DEPTHS[:1]:
        made = ProgramBuilder(1, target, precision, model_chooser(target, precision, 1))
        bias = made.matrix("bias", 1, 4096)
        attention(made, made.matrix("qkv", 64, 3 * depth), 1, depth, bias, "attention")
        yield made.program


def count(device: Device, runtime: standin.Runtime, program: Program) -> tuple[str, float]:
    """Of the program's only launch: its layout, and cycles taken for each of the least."""
    emulator = CountingEmulator(device.info.target.name)
    runtime.set_strategy(Emulation(emulator=lambda _: emulator))
    launch = program.steps[0]
    assert isinstance(launch, Launch)
    buffers = (argument for argument in launch.arguments if isinstance(argument, Buffer))
    names = {buffer.name for buffer in buffers if buffer.name in program.work}
    run(device, program, {name: np.zeros(program.work[name], np.uint8) for name in names})
    return layout_of(launch.kernel), round(emulator.taken / emulator.least, 2)


def _normal(*shape: int) -> FloatArray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def main() -> None:
    from tests.evaluator.gpu.fibers import open_amd

    with tempfile.TemporaryDirectory() as folder:
        runtime = standin.load(standin.build(Path(folder) / "rocm"))
        table: dict[str, dict[str, float]] = {}
        for name in UNITS:
            runtime.reset(name)
            device = open_amd()
            unit = device.info.target.matrix_unit(Precision.FP16).value
            found = programs(device, all_tiles=True)
            table[unit] = dict(count(device, runtime, program) for program in found)
            print(unit, table[unit], flush=True)
        TABLE.write_text(json.dumps(table, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

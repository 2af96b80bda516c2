# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of a code object's kernels in the instruction emulator, block after block.

Memory is this process's own. Shared memory and registers start out as NaN patterns, and shared memory lies
between guard zones. The waves of a block run one after the other from barrier to barrier, first to last in
one block and last to first in the next. Races between them and missing waits fail the launch (races.py).
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.emulator.code_object import CodeObject, Kernel
from tests.emulator.effects import EffectsError
from tests.emulator.instructions import EmulatorError, Translator
from tests.emulator.races import EARLY_USE, RACE, Listing, RaceCheck, listing

_INSTRUCTION = np.dtype(
    [("function", "u8"), ("effects", "u8"), ("arguments", "u1", 6), ("is_barrier", "u1"), ("unused", "u1")]
)
ENDED, AT_BARRIER, _NOT_TRANSLATED, TOO_LONG = range(4)
_MOST_INSTRUCTIONS = 1 << 28
_PROGRAM_COUNTER = 256
_EXEC = 126
_POISONED_SCALARS = 106
"""Those that hold nothing but what a program puts there."""

_GUARD_WORDS = 1024
_GUARD = 0xA5A5A5A5
_POISON = 0xFFFFFFFF  # NaN in every floating-point format


@dataclass(frozen=True, slots=True)
class Program:
    """Code in memory, and for every 4 bytes of it the translation of the instruction that begins there, if it
    has been run. listing: for the check for races; None without the check."""

    code: CodeObject
    translated: NDArray[Any]
    listing: Listing | None


class Emulator:
    """One target. check_races: report races in shared memory and missing waits. instructions: that waves have
    executed so far."""

    def __init__(self, target: str, *, check_races: bool = True) -> None:
        self.target = target
        self._check_races = check_races
        self.instructions = 0
        self.translator = Translator(target)

    def load(self, code: bytes) -> Program:
        """Raises CodeObjectError; EmulatorError for a code object of another target."""
        loaded = CodeObject(code)
        if loaded.target != self.target:
            raise EmulatorError(f"code for {loaded.target} does not run on {self.target}")
        listed = listing(code, self.translator.family) if self._check_races else None
        return Program(loaded, np.zeros(loaded.size // 4 + 1, _INSTRUCTION), listed)

    def launch(
        self,
        program: Program,
        name: str,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: bytes,
    ) -> None:
        """shared_bytes: dynamic. arguments: the kernel's argument block. Raises EmulatorError."""
        kernel = program.code.kernels[name]
        if threads > kernel.max_threads:
            raise EmulatorError(f"{name} allows {kernel.max_threads} threads, not {threads}")
        shared_bytes += kernel.shared_bytes
        block = Block(self.translator, kernel, threads, shared_bytes, arguments)
        if program.listing is not None:
            block.races = RaceCheck(
                waves_library(),
                program.listing,
                self.translator.family,
                self.translator.wave,
                block.waves,
                shared_bytes,
            )
        executed = ctypes.c_uint64(0)
        for number, (z, y, x) in enumerate(itertools.product(*map(range, reversed(grid)))):
            block.start((x, y, z))
            running = list(range(block.waves))
            if number % 2:
                running.reverse()
            while running:
                running = [wave for wave in running if not self._run(program, block, wave, executed)]
            block.check_guards()
        self.instructions += executed.value

    def _run(self, program: Program, block: Block, wave: int, executed: ctypes.c_uint64) -> bool:
        """Run a wave up to a barrier or its end; whether it has ended."""
        stopped = self.advance(program, block, wave, executed, _MOST_INSTRUCTIONS)
        if stopped == TOO_LONG:
            raise EmulatorError(f"{block.kernel.name} does not end")
        if block.races is not None and stopped in (EARLY_USE, RACE):
            at = block.address(wave) - program.code.base
            raise EmulatorError(f"{block.kernel.name}: {block.races.fault(stopped, wave, at)}")
        if block.races is not None and stopped == AT_BARRIER:
            block.races.count_barrier()
        return stopped == ENDED

    def advance(
        self, program: Program, block: Block, wave: int, executed: ctypes.c_uint64, limit: int
    ) -> int:
        """Run a wave up to a barrier or its end, or for so many instructions; why it stopped."""
        code, table = program.code, program.translated
        scalars, races = block.scalars[wave], block.races
        while True:
            stopped = int(
                waves_library().run_wave(
                    ctypes.c_void_p(scalars.ctypes.data),
                    ctypes.c_void_p(block.buffers[wave].ctypes.data),
                    ctypes.c_void_p(table.ctypes.data),
                    ctypes.c_uint64(code.base),
                    ctypes.c_uint64(len(table)),
                    ctypes.c_uint64(limit),
                    ctypes.byref(executed),
                    None if races is None else ctypes.byref(races.block),
                    None if races is None else ctypes.c_void_p(races.waves[wave].ctypes.data),
                )
            )
            if stopped != _NOT_TRANSLATED:
                return stopped
            address = block.address(wave)
            if not code.base <= address < code.base + code.size:
                raise EmulatorError(f"{block.kernel.name} jumps to {address:#x}, outside of its code")
            translated = self.translator.translate(address)
            entry = table[(address - code.base) // 4]
            entry["arguments"][: len(translated.arguments)] = translated.arguments
            entry["is_barrier"] = translated.is_barrier
            if program.listing is not None:
                try:
                    effects = program.listing.effects(address - code.base)
                except EffectsError as error:
                    raise EmulatorError(f"cannot check {block.kernel.name} for races: {error}") from error
                entry["effects"] = ctypes.addressof(effects)
            entry["function"] = translated.address


class Block:
    """Registers and shared memory of a block's waves, used for one block after the other. races: the check
    for races, if there is one."""

    races: RaceCheck | None = None

    def __init__(
        self, translator: Translator, kernel: Kernel, threads: int, shared_bytes: int, arguments: bytes
    ) -> None:
        self.kernel = kernel
        self._lanes = translator.wave
        self._family = translator.family
        self._threads = threads
        self.waves = -(-threads // self._lanes)
        self._arguments = np.zeros(max(kernel.argument_bytes, len(arguments), 16), np.uint8)
        self._arguments[: len(arguments)] = np.frombuffer(arguments, np.uint8)
        words = -(-shared_bytes // 4)
        self._shared = np.full(words + 2 * _GUARD_WORDS, _GUARD, np.uint32)
        self.scalars = [np.zeros(translator.scalar_registers, np.uint32) for _ in range(self.waves)]
        self.vectors = [np.zeros(256 * self._lanes, np.uint32) for _ in range(self.waves)]
        # CDNA has a second file of vector registers for the matrix unit's sums.
        second = self._family == "cdna"
        self._sums = [np.zeros_like(each) if second else each for each in self.vectors]
        shared = self._shared[_GUARD_WORDS:].ctypes.data
        self.buffers = [
            np.array([s.ctypes.data, v.ctypes.data, 0, shared, 0, a.ctypes.data], np.uint64)
            for s, v, a in zip(self.scalars, self.vectors, self._sums, strict=True)
        ]
        self._constants = np.zeros(translator.scalar_registers, np.uint32)
        self._constants[:_POISONED_SCALARS] = _POISON
        self._constants[128:193] = np.arange(65)
        self._constants[193:209] = -np.arange(1, 17)
        for number, bits in translator.float_constants.items():
            self._constants[number] = bits
        self._block_id_registers = translator.block_id_registers

    def start(self, index: tuple[int, int, int]) -> None:
        """Let all waves begin block (x, y, z)."""
        if self.races is not None:
            self.races.start_block()
        self._shared[_GUARD_WORDS:-_GUARD_WORDS] = _POISON
        kernel = self.kernel
        for wave, (scalars, vectors, sums) in enumerate(
            zip(self.scalars, self.vectors, self._sums, strict=True)
        ):
            scalars[:] = self._constants
            vectors[:] = sums[:] = _POISON
            _put(scalars, _PROGRAM_COUNTER, kernel.entry)
            _put(scalars, kernel.argument_pointer, self._arguments.ctypes.data)
            if self._family == "rdna4":
                x_register, yz_register = self._block_id_registers
                scalars[x_register] = index[0]
                scalars[yz_register] = index[1] | index[2] << 16
            else:
                register = kernel.first_block_id
                for wanted, value in zip(kernel.block_ids, index, strict=True):
                    if wanted:
                        scalars[register] = value
                        register += 1
            first = wave * self._lanes
            lanes = min(self._lanes, self._threads - first)
            _put(scalars, _EXEC, (1 << lanes) - 1)
            vectors[: self._lanes] = np.arange(first, first + self._lanes)

    def address(self, wave: int) -> int:
        """Of the instruction that a wave executes next."""
        scalars = self.scalars[wave]
        return int(scalars[_PROGRAM_COUNTER]) | int(scalars[_PROGRAM_COUNTER + 1]) << 32

    def active(self, wave: int) -> NDArray[np.bool_]:
        """Its lanes that execute."""
        scalars = self.scalars[wave]
        bits = int(scalars[_EXEC]) | int(scalars[_EXEC + 1]) << 32
        return np.array([bits >> lane & 1 for lane in range(self._lanes)], bool)

    def check_guards(self) -> None:
        before, behind = self._shared[:_GUARD_WORDS], self._shared[-_GUARD_WORDS:]
        if not ((before == _GUARD).all() and (behind == _GUARD).all()):
            raise EmulatorError(f"{self.kernel.name} wrote outside of its shared memory")


def _put(registers: NDArray[np.uint32], at: int, value: int) -> None:
    registers[at] = value & 0xFFFFFFFF
    registers[at + 1] = value >> 32


@cache
def waves_library() -> ctypes.CDLL:
    source = Path(__file__).with_name("waves.c")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/waves.so"
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", str(source), "-o", library], check=True)
        return ctypes.CDLL(library)

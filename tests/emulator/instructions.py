# SPDX-License-Identifier: GPL-3.0-or-later
"""Single AMD instructions as functions in this machine's code, by the emulator in the tinygrad source tree.

It is the folder `test/mockgpu/amd` of a checkout, which the environment variable TINYGRAD names, and not on
PyPI. It translates an instruction to C from AMD's own pseudocode and compiles it with clang. What it is known
to get wrong is refused here or put right in repairs.py, so that no test passes or fails because of it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from evaluator.backends.gpu.driver.target import amd_target
from tests.emulator.repairs import repair

_FAMILIES = {
    "gfx906": "cdna",  # of whose instructions CDNA has all that our kernels use
    "gfx908": "cdna",
    "gfx90a": "cdna",
    "gfx942": "cdna",
    "gfx950": "cdna",
    "gfx1100": "rdna3",
    "gfx1151": "rdna3",
    "gfx1200": "rdna4",
    "gfx1201": "rdna4",
}
"""The targets that can be emulated, by the emulator's names for their instruction sets."""

TARGETS = tuple(_FAMILIES)

E4M3_TARGETS = tuple(target for target in TARGETS if not amd_target(target).no_e4m3)
"""Those for which precision=fp8 is offered."""

_WRONG = re.compile(r"PERMLANE(?!X?16_B32)|ATOMIC|MFMA_\w*_32X32X|DS_\w*8_D16")
"""Lane exchanges (except those in exchanges.py) read lanes that they have already written; atomics do not
return the old value; MFMA 32x32 permutes its result's rows; loads of a byte into half a register write all of
it."""

_BARRIERS = ("S_BARRIER", "S_BARRIER_WAIT")

_WIDTHS = {"B128": 16, "B96": 12, "B64": 8}
"""Bytes of a lane; all other accesses to shared memory occupy a bank for 4."""

_THREAD = ThreadPoolExecutor(max_workers=1)
"""Everything of tinygrad runs there: its cache of compiled code is a database that belongs to one thread."""


class EmulatorError(Exception):
    """An instruction cannot be emulated, or a program does not end."""


def unavailable() -> str | None:
    """Why there is no emulator here; None if there is one."""
    if "TINYGRAD" not in os.environ:
        return "needs the instruction emulator: TINYGRAD must name a checkout of the tinygrad source tree"
    if not (Path(os.environ["TINYGRAD"]) / "test/mockgpu/amd/emu.py").is_file():
        return f"TINYGRAD names {os.environ['TINYGRAD']}, in which there is no test/mockgpu/amd/emu.py"
    for program in ("clang-19", "ld.lld-19", "llvm-objdump-19", "cc"):
        if shutil.which(program) is None:
            return f"needs {program} (Debian: apt-get install clang-19 lld-19 llvm-19)"
    return None


@dataclass(frozen=True, slots=True)
class Translated:
    """address: of a C function. arguments: which of the wave's buffers it takes, in order. text: the
    instruction, for messages."""

    address: int
    arguments: tuple[int, ...]
    is_barrier: bool
    text: str


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """name: of the instruction. size: bytes of a lane at each of the offsets from what the vector register
    `address` holds; none where lanes exchange values."""

    name: str
    size: int
    offsets: tuple[int, ...]
    address: int = 0


class Translator:
    """Instructions of one target. It may be used from any thread."""

    def __init__(self, target: str) -> None:
        self.family = _FAMILIES[target]
        self.wave = 64 if self.family == "cdna" else 32
        self._emulator: ModuleType
        self._emulator, self._choose_target = _THREAD.submit(_import).result()
        self._target = target

    @property
    def scalar_registers(self) -> int:
        """32-bit words of a wave's scalar file, including the constants that instructions can name."""
        return int(self._emulator.SGPR_COUNT)

    @property
    def float_constants(self) -> dict[int, int]:
        """Bits by the number under which instructions name them."""
        return dict(self._emulator.F32_INLINE)

    @property
    def block_id_registers(self) -> tuple[int, int]:
        """RDNA 4 has the block's x in one trap register and y, z as the halves of another."""
        return int(self._emulator.ttmp[9].offset), int(self._emulator.ttmp[7].offset)

    def translate(self, address: int) -> Translated:
        """The instruction at an address of this process. Raises EmulatorError."""
        return _THREAD.submit(self._translate, address).result()

    def shared_access(self, address: int) -> SharedAccess | None:
        """How the instruction at an address reaches shared memory; None if it does not."""
        return _THREAD.submit(self._shared_access, address).result()

    def _shared_access(self, address: int) -> SharedAccess | None:
        instruction: Any = self._emulator.decode_inst(ctypes.string_at(address, 16), self.family)
        if type(instruction).__name__ != "DS":
            return None
        name = self._emulator._op_name(instruction)
        if "PERMUTE" in name or "SWIZZLE" in name:
            return SharedAccess(name, 0, ())
        size = next((bytes_ for word, bytes_ in _WIDTHS.items() if word in name), 4)
        first, second = int(instruction.offset0), int(instruction.offset1)
        if "2ADDR" in name or "READ2" in name or "WRITE2" in name:
            stride = size * (64 if "ST64" in name or "STRIDE64" in name else 1)
            return SharedAccess(name, size, (first * stride, second * stride), _vector(instruction.addr))
        return SharedAccess(name, size, (first | second << 8,), _vector(instruction.addr))

    def _translate(self, address: int) -> Translated:
        code = ctypes.string_at(address, 16)
        self._choose_target(self._target)
        instruction: Any = None
        try:
            instruction = self._emulator.decode_inst(code, self.family)
            name = self._emulator._op_name(instruction)
            if _WRONG.search(name):
                raise EmulatorError("the emulator is known to get it wrong")
            if name.startswith("FLAT_"):
                raise EmulatorError("a flat access, which occupies the LDS: the kind of memory was lost")
            program, runner = self._emulator._get_runner(code[: instruction.size() + 4], self.family)
        except Exception as error:
            raise EmulatorError(f"cannot emulate {instruction!r} ({code[:8].hex()}): {error}") from error
        return Translated(runner.addr, tuple(program.arg.globals), name in _BARRIERS, repr(instruction))


def _vector(register: Any) -> int:
    """Its number among the vector registers."""
    return int(register.offset) - 256


@cache
def _import() -> tuple[ModuleType, Callable[[str], None]]:
    """The emulator, and what is told for which target it translates."""
    os.environ.setdefault("CC", "clang-19")
    os.environ.setdefault("DEV", "CPU")
    checkout = os.environ["TINYGRAD"]
    # Its packages have names like `test`: on the path only while they are imported.
    sys.path.insert(0, checkout)
    try:
        from test.mockgpu.amd import emu
    finally:
        sys.path.remove(checkout)
    emulator: ModuleType = emu
    return emulator, repair(emulator)

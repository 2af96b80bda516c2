# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in HIP runtime with kernels as real machine code: compiled offline, run in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tests.emulator.emulator import Emulator, Program
from tests.emulator.offline import compile_offline
from tests.hip_runtime import standin


@cache
def emulator(target: str) -> Emulator:
    """One per process and target, so that an instruction is translated once."""
    return Emulator(target)


class Function(NamedTuple):
    target: str
    program: Program
    name: str


class Emulation(standin.Strategy):
    """For devices of any target that the emulator knows. edit: changes every source before it is compiled.
    emulator: of a target."""

    def __init__(
        self, edit: Callable[[str], str] = str, emulator: Callable[[str], Emulator] = emulator
    ) -> None:
        self._edit = edit
        self._emulator = emulator

    def compile(self, source: str, name: str, options: list[str]) -> tuple[bytes, str]:
        return compile_offline(self._edit(source), options), ""

    def load(self, code: bytes, target: str) -> tuple[str, Program]:
        return target, self._emulator(target).load(code)

    def function(self, module: tuple[str, Program], name: str) -> Function:
        target, program = module
        program.code.kernels[name]  # KeyError: there is no such kernel
        return Function(target, program, name)

    def launch(
        self, function: Function, grid: standin.Size, block: standin.Size, shared_bytes: int, arguments: bytes
    ) -> None:
        target, program, name = function
        threads = block[0] * block[1] * block[2]
        self._emulator(target).launch(program, name, grid, threads, shared_bytes, arguments)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Compiles bitcode to an object or to assembly by ROCm's LLVM, as the main module of a child process.

The process is separate because LLVM aborts on some errors, and its options are global.

The library comes from the package rocm-bindings-compiler. It is linked with ROCm's builds of zlib and zstd,
which are not on PyPI. Stubs of these suffice, because nothing is compressed here.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from protocol.host.processes import child_command

STUBS = {
    "librocm_sysdeps_z.so.1": ("compress2", "compressBound", "crc32", "uncompress"),
    "librocm_sysdeps_zstd.so.1": (
        "ZSTD_CCtx_setParameter",
        "ZSTD_compress2",
        "ZSTD_compressBound",
        "ZSTD_createCCtx",
        "ZSTD_decompress",
        "ZSTD_freeCCtx",
        "ZSTD_getErrorName",
        "ZSTD_isError",
    ),
}
"""The libraries, and the functions that LLVM imports from them."""

STUB_VERSIONS = "AMDROCM_SYSDEPS_1.0 { global: *; };\n"

_OPTIONS = ("-amdgpu-internalize-symbols", "-pass-remarks-analysis=kernel-resource-usage")
"""hipRTC's option, and one that reports the resources."""

_TRIPLE = b"amdgcn-amd-amdhsa"
_AGGRESSIVE, _PIC, _DEFAULT_CODE_MODEL = 3, 2, 0
_ASSEMBLY, _OBJECT = 0, 1


def stub_source(stub: str) -> str:
    """Return the C source of a stub."""
    return "".join(f"long {name}(void) {{ return 0; }}\n" for name in STUBS[stub])


def command(library: Path, stubs: Path, bitcode: Path, target: str, out: Path) -> list[str]:
    """Return the command line of the child. library: ROCm's LLVM. stubs: their folder. out: the assembly if
    the name ends in ".s", else the object."""
    return child_command(__name__, *map(str, (library, stubs, bitcode)), target, str(out))


def main() -> str | None:
    """Compile. Returns an error message."""
    return _compile(*sys.argv[1:])


def _compile(library: str, stubs: str, bitcode: str, target: str, out: str) -> str | None:
    for stub in STUBS:
        ctypes.CDLL(str(Path(stubs) / stub), ctypes.RTLD_GLOBAL)
    llvm = ctypes.CDLL(library)

    def handle(function: str, *arguments: Any) -> ctypes.c_void_p:
        call = getattr(llvm, function)
        call.restype = ctypes.c_void_p
        return ctypes.c_void_p(call(*arguments))

    options = [argument.encode() for argument in ("rocm_llvm", *_OPTIONS)]
    llvm.LLVMParseCommandLineOptions(len(options), (ctypes.c_char_p * len(options))(*options), None)
    for part in ("TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    error, buffer, module, kind = ctypes.c_char_p(), *(ctypes.c_void_p() for _ in range(3))
    if llvm.LLVMCreateMemoryBufferWithContentsOfFile(
        bitcode.encode(), ctypes.byref(buffer), ctypes.byref(error)
    ):
        return str(error.value)
    if llvm.LLVMParseBitcodeInContext2(handle("LLVMContextCreate"), buffer, ctypes.byref(module)):
        return f"{bitcode} is not bitcode of this LLVM"
    if llvm.LLVMGetTargetFromTriple(_TRIPLE, ctypes.byref(kind), ctypes.byref(error)):
        return str(error.value)
    machine = handle(
        "LLVMCreateTargetMachine",
        kind,
        _TRIPLE,
        target.encode(),
        b"",
        _AGGRESSIVE,
        _PIC,
        _DEFAULT_CODE_MODEL,
    )
    failure = handle("LLVMRunPasses", module, b"default<O3>", machine, handle("LLVMCreatePassBuilderOptions"))
    if failure:
        message = handle("LLVMGetErrorMessage", failure).value
        return ctypes.string_at(message).decode() if message else "the passes failed"
    form = _ASSEMBLY if out.endswith(".s") else _OBJECT
    llvm.LLVMSetTargetMachineAsmVerbosity(machine, 1)
    if llvm.LLVMTargetMachineEmitToFile(machine, module, out.encode(), form, ctypes.byref(error)):
        return str(error.value)
    return None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Compile HIP for an AMD target without ROCm, by one of COMPILERS.

The default is clang-19, or a newer clang for targets that clang-19 does not know (gfx950). `pip install
'.[amd-check]'` installs clang 22 (ziglang) and ROCm's LLVM. "rocm" works as hipRTC does: clang writes bitcode
without optimising it, and ROCm's LLVM does the rest. It runs in a child process because it aborts on some
errors. It is linked with ROCm's zlib and zstd, which are not on PyPI. Stubs suffice: nothing is compressed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from evaluator.backends.gpu.driver.device import CompilationError

COMPILERS = ("clang-19", "clang-22", "rocm")
_CLANGS = [(f"clang-{version}",) for version in (19, 20, 21, 22)]
_ZSTD = ("CCtx_setParameter", "compress2", "compressBound", "createCCtx", "decompress", "freeCCtx")
_STUBS = {
    "librocm_sysdeps_z.so.1": ("compress2", "compressBound", "crc32", "uncompress"),
    "librocm_sysdeps_zstd.so.1": [f"ZSTD_{name}" for name in (*_ZSTD, "getErrorName", "isError")],
}
"""The functions that ROCm's LLVM imports."""


def unavailable(target: str, compiler: str = "") -> str:
    """Return why a compiler, by default any, cannot compile for a target; empty if it can."""
    if not (shutil.which("clang-19") and shutil.which("ld.lld-19")):
        return "needs clang-19 and lld-19 (apt-get install clang-19 lld-19)"
    if compiler == "rocm" and _file("rocm.bindings.llvm", "libLLVM.so") is None:
        return "needs rocm-bindings-compiler (pip install '.[amd-check]')"
    if _clang(target, compiler) is None:
        return f"{compiler or 'clang-19'} does not compile for {target} (pip install ziglang)"
    return ""


def version(target: str, compiler: str = "") -> str:
    """Return the versions of a compiler's parts."""
    clang = _clang(target, compiler)
    assert clang is not None
    linked = (_file("rocm.bindings.llvm", "libLLVM.so") if compiler == "rocm" else None) or Path("/dev/null")
    return f"{_output(clang, '--version')} {linked} {linked.stat().st_size}"


def compile_file(path: Path, target: str, options: Sequence[str], out: Path, compiler: str = "") -> str:
    """Compile to a code object, or to assembly if `out` ends in ".s", in a folder for this alone.

    Returns the compiler's messages with the kernel's resources. Raises CompilationError with the messages.
    """
    clang, folder = _clang(target, compiler), out.parent
    assert clang is not None
    start = [*clang, "-x", "hip", f"--offload-arch={target}", "--cuda-device-only", "--no-gpu-bundle-output"]
    start += ["-nogpuinc", "-nogpulib", *options, str(path)]
    # Families need version 6, which runtimes before ROCm 6.3 do not load; newer clangs make it by default.
    start.append(f"-mcode-object-version={6 if target.endswith('-generic') else 5}")
    if clang[0] != "clang-19":
        start.append(f"-B{folder}")
        for name in ("lld", "ld.lld"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(str(shutil.which("ld.lld-19")))
    if compiler != "rocm":
        assembly = ["-S"] if out.suffix == ".s" else []
        return _run([*start, *assembly, "-Rpass-analysis=kernel-resource-usage", "-o", str(out)], out)
    bitcode, made = out.with_suffix(".bc"), out if out.suffix == ".s" else out.with_suffix(".o")
    hiprtc = ("-D__HIPCC_RTC__=1", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm")
    _run([*start, *hiprtc, "-o", str(bitcode)], bitcode)
    for stub, names in _STUBS.items():
        (source := folder / f"{stub}.c").write_text(
            "".join(f"long {name}(void) {{ return 0; }}\n" for name in names)
        )
        (versions := folder / f"{stub}.map").write_text("AMDROCM_SYSDEPS_1.0 { global: *; };\n")
        linker = [f"--ld-path={shutil.which('ld.lld-19')}", f"-Wl,--version-script={versions},-soname,{stub}"]
        compile_stub = ["clang-19", "-shared", "-nostdlib", "-fPIC", "-w", *linker, str(source), "-o"]
        _run([*compile_stub, str(folder / stub)], folder / stub)
    report = _run([sys.executable, __file__, str(bitcode), target, str(made)], made)
    if made != out:
        _run(["ld.lld-19", "-shared", "--no-undefined", str(made), "-o", str(out)], out)
    return report


def _run(arguments: Sequence[str], out: Path) -> str:
    """Run a program in the folder of its output and return its messages. Raises CompilationError."""
    done = subprocess.run(arguments, cwd=out.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not out.exists():
        raise CompilationError(done.stderr)
    return done.stderr


def _clang(target: str, compiler: str) -> tuple[str, ...] | None:
    """Return the first clang that knows a target."""
    zig = [] if (path := _file("ziglang", "zig")) is None else [(str(path), "clang")]
    named = (
        [*_CLANGS, *zig] if not compiler else _CLANGS[:1] if compiler == "clang-19" else [*zig, _CLANGS[-1]]
    )
    query = ("-nogpulib", "--print-supported-cpus", "--target=amdgcn-amd-amdhsa")
    return next((each for each in named if target in _output(each, *query).split()), None)


@cache
def _output(clang: tuple[str, ...], *arguments: str) -> str:
    if shutil.which(clang[0]) is None:
        return ""
    done = subprocess.run([*clang, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@cache
def _file(package: str, name: str) -> Path | None:
    """Return a file of an installed package."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return None
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for each in folders if (path := Path(each) / name).exists()), None)


def _optimise(bitcode: str, target: str, out: str) -> str | None:
    """Compile bitcode by ROCm's LLVM, and return an error message. The current folder has the stubs."""
    for stub in _STUBS:
        ctypes.CDLL(str(Path(stub).resolve()), ctypes.RTLD_GLOBAL)
    llvm = ctypes.CDLL(str(_file("rocm.bindings.llvm", "libLLVM.so")))

    def handle(function: str, *arguments: object) -> ctypes.c_void_p:
        call = getattr(llvm, function)
        call.restype = ctypes.c_void_p
        return ctypes.c_void_p(call(*arguments))

    triple, aggressive, pic, default_model, is_assembly = b"amdgcn-amd-amdhsa", 3, 2, 0, out.endswith(".s")
    options = (b"", b"-amdgpu-internalize-symbols", b"-pass-remarks-analysis=kernel-resource-usage")
    llvm.LLVMParseCommandLineOptions(len(options), (ctypes.c_char_p * len(options))(*options), None)
    for part in ("TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    error, buffer, module, kind = ctypes.c_char_p(), *(ctypes.c_void_p() for _ in range(3))
    read = llvm.LLVMCreateMemoryBufferWithContentsOfFile
    if read(bitcode.encode(), ctypes.byref(buffer), ctypes.byref(error)):
        return str(error.value)
    if llvm.LLVMParseBitcodeInContext2(handle("LLVMContextCreate"), buffer, ctypes.byref(module)):
        return f"{bitcode} is not bitcode of this LLVM"
    if llvm.LLVMGetTargetFromTriple(triple, ctypes.byref(kind), ctypes.byref(error)):
        return str(error.value)
    settings = (triple, target.encode(), b"", aggressive, pic, default_model)
    machine = handle("LLVMCreateTargetMachine", kind, *settings)
    passes = handle("LLVMCreatePassBuilderOptions")
    failure = handle("LLVMRunPasses", module, b"default<O3>", machine, passes)
    if failure:
        return str(ctypes.string_at(handle("LLVMGetErrorMessage", failure).value or 0).decode())
    llvm.LLVMSetTargetMachineAsmVerbosity(machine, 1)
    form = 0 if is_assembly else 1
    if llvm.LLVMTargetMachineEmitToFile(machine, module, out.encode(), form, ctypes.byref(error)):
        return str(error.value)
    return None


if __name__ == "__main__":
    sys.exit(_optimise(*sys.argv[1:]))

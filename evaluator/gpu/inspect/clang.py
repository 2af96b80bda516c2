# SPDX-License-Identifier: GPL-3.0-or-later
"""The compilers of kernels for an AMD target without ROCm: two versions of clang, and ROCm's LLVM.

The default is clang-19 where that knows the target, because its code is what the emulator tests run. Newer
targets (gfx950) need a newer clang: Debian's, or the one in the package ziglang of PyPI.

"rocm" works as hipRTC does: clang makes bitcode without optimising it, and the LLVM of ROCm 10 does the rest
(rocm_llvm.py). Unlike there, the front end is ziglang's clang, and no header precedes the source. The kernels
use nothing of that header: it declares functions and types, and defines macros such as __launch_bounds__.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.inspect import rocm_llvm
from protocol.host.extras import install

ALONE = ("--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib")
"""Options for a code object of one target. The kernels need no header of ROCm and no device library."""

COMPILERS = ("clang-19", "clang-22", "rocm")
"""Compilers that a user can name."""

_HIPRTC = ("-D__HIPCC_RTC__=1", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm")
"""Options that hipRTC adds for bitcode, besides warnings and macros of HIP's version."""

_REMARKS = "-Rpass-analysis=kernel-resource-usage"

_LINKER = "ld.lld-19"
_CLANGS = (("clang-19",), ("clang-20",), ("clang-21",), ("clang-22",))
_building = threading.Lock()


def unavailable(target: str, compiler: str = "") -> str | None:
    """Return why there is no compiler for a target, such as gfx1100; None if there is one. compiler: one of
    COMPILERS, or empty for the default."""
    missing = [name for name in ("clang-19", _LINKER) if shutil.which(name) is None]
    if missing:
        return f"needs {' and '.join(missing)} (apt-get install clang-19 lld-19)"
    if compiler == "rocm" and _rocm_library() is None:
        return f"needs rocm-bindings-compiler for Linux x86-64 ({install('amd-check')})"
    if compiler in ("clang-22", "rocm") and not any(map(_targets, _named(compiler))):
        return f"needs clang 22 ({install('amd-check')})"
    if _clang(target, compiler) is None:
        if compiler:
            return f"{compiler} does not know {target}"
        return f"needs a newer clang than clang-19, which does not know {target} (pip install ziglang)"
    return None


def compile_file(path: Path, target: str, options: Sequence[str], out: Path, compiler: str = "") -> str:
    """Compile HIP to a code object, or to assembly if `out` ends in ".s", in a folder for this alone.

    Returns the compiler's messages with the kernel's resources. Raises CompilationError with the messages.
    """
    start = [*command(target, out.parent, compiler), *options, str(path), "-o"]
    if compiler != "rocm":
        assembly = ["-S"] if out.suffix == ".s" else []
        return _run([*start, str(out), _REMARKS, *assembly], out)
    library = _rocm_library()
    assert library is not None
    bitcode, linked = out.with_suffix(".bc"), out.suffix != ".s"
    made = out.with_suffix(".o") if linked else out
    _run([*start, str(bitcode), *_HIPRTC], bitcode)
    report = _run(rocm_llvm.command(library, _stubs(), bitcode, target, made), made)
    if linked:
        _run([_LINKER, "-shared", "--no-undefined", str(made), "-o", str(out)], out)
    return report


def command(target: str, folder: Path, compiler: str = "") -> list[str]:
    """Return the start of a command that compiles HIP for a target. folder: an existing one, for a link to
    the linker."""
    found = _clang(target, compiler)
    assert found is not None
    start = [*found, "-x", "hip", f"--offload-arch={target}", *ALONE]
    if target.endswith("-generic"):
        start.append("-mcode-object-version=6")  # clang-19 makes version 5, which has no families
    if found[0] == "clang-19":
        return start
    linker = shutil.which(_LINKER)
    assert linker is not None
    for name in ("lld", "ld.lld"):
        if not (folder / name).exists():
            (folder / name).symlink_to(linker)
    return [*start, f"-B{folder}"]


def _run(arguments: Sequence[str], out: Path) -> str:
    """Run a program in the folder of its output and return its messages. Raises CompilationError."""
    done = subprocess.run(arguments, cwd=out.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not out.exists():
        raise CompilationError(done.stderr)
    return done.stderr


def _stubs() -> Path:
    """Return the folder with stubs of the libraries that ROCm's LLVM is linked with."""
    with _building:
        return Path(_built_stubs().name)


@cache
def _built_stubs() -> tempfile.TemporaryDirectory[str]:
    temporary = tempfile.TemporaryDirectory(prefix="wavefront-")
    folder = Path(temporary.name)
    for stub in rocm_llvm.STUBS:
        (source := folder / f"{stub}.c").write_text(rocm_llvm.stub_source(stub), "utf-8")
        (versions := folder / f"{stub}.map").write_text(rocm_llvm.STUB_VERSIONS, "utf-8")
        linker = [f"--ld-path={shutil.which(_LINKER)}", f"-Wl,--version-script={versions},-soname,{stub}"]
        made = folder / stub
        options = ["-shared", "-nostdlib", "-fPIC", "-w"]
        _run(["clang-19", *options, *linker, str(source), "-o", str(made)], made)
    return temporary


def _named(compiler: str) -> Sequence[tuple[str, ...]]:
    """Return the clangs that may be meant, the preferred one first."""
    match compiler:
        case "":
            return (*_CLANGS, *_ziglang())
        case "clang-19":
            return (("clang-19",),)
        case _:
            return (*_ziglang(), ("clang-22",))


def _clang(target: str, compiler: str) -> Sequence[str] | None:
    """Return the first clang that knows a target."""
    return next((each for each in _named(compiler) if target in _targets(each)), None)


def _ziglang() -> list[tuple[str, ...]]:
    """Return the command of ziglang's clang, if the package is installed."""
    spec = importlib.util.find_spec("ziglang")
    return [] if spec is None or spec.origin is None else [(str(Path(spec.origin).with_name("zig")), "clang")]


@cache
def _rocm_library() -> Path | None:
    """Return ROCm's LLVM in the package rocm-bindings-compiler, if that is installed."""
    try:
        spec = importlib.util.find_spec("rocm.bindings.llvm")
    except ImportError:
        return None
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for each in folders if (path := Path(each) / "libLLVM.so").exists()), None)


@cache
def _targets(clang: tuple[str, ...]) -> frozenset[str]:
    if shutil.which(clang[0]) is None:
        return frozenset()
    query = ["-nogpulib", "--print-supported-cpus", "--target=amdgcn-amd-amdhsa"]
    done = subprocess.run([*clang, *query], capture_output=True, text=True, check=False)
    return frozenset((done.stdout + done.stderr).split())

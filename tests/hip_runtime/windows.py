# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the stand-in runtime as amdhip64_7.dll on Linux, and ships kernels on CPU fibers for it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from evaluator.backends.gpu.driver.compiler import KernelKey, source
from evaluator.backends.gpu.driver.shipped import digest
from evaluator.backends.gpu.driver.target import Target
from scripts import code_objects
from tests.hip_runtime.standin import FOLDER

COMPILER = "x86_64-w64-mingw32-g++-posix"
SOURCES = ("control.cc", "memory.cc", "streams.cc", "modules.cc", "shipped_strategy.cc")
_EXPORT = """
extern "C" __declspec(dllexport) int standin_launch_{0}(const unsigned* grid, int threads,
                                                        unsigned long shared, const void* arguments) {{
  return fibers::launch_packed({0}, grid, threads, shared, arguments);
}}
"""


def build_runtime(system32: Path) -> None:
    """Put amdhip64_7.dll into the folder of a Windows system."""
    whole = "".join(f'#include "{FOLDER / name}"\n' for name in SOURCES)
    (system32 / "amdhip64_7.dll").write_bytes(_dll(whole, ["-std=c++20"]))


def ship(path: Path, keys: Iterable[KernelKey], target: Target) -> None:
    """Write an archive of kernels for one target, whose name is that of its family."""
    objects = {}
    for key in keys:
        options = (*key.options, *target.options)
        objects[digest(source(key.file), options, target.name)] = _kernel(key, options, target)
    code_objects.write(path, [(target.name, code_objects.packed(objects))])


def _kernel(key: KernelKey, options: tuple[str, ...], target: Target) -> bytes:
    text = f'#include "{FOLDER / "fibers.h"}"\n{source(key.file)}\n{_EXPORT.format(key.file)}'
    flags = ["-std=c++17", "-DWAVEFRONT_CPU", f"-DWAVEFRONT_CPU_WAVE={target.wave}", "-fno-strict-aliasing"]
    code = _dll(text, [*flags, *options])
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    header[40:48] = (len(header) + len(code)).to_bytes(8, "little")  # where the sections would be
    return bytes(header) + code


def _dll(text: str, flags: list[str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "whole.cc"), Path(folder, "whole.dll")
        file.write_text(text, "utf-8")
        command = [COMPILER, "-O1", "-w", "-shared", "-static", *flags, str(file), "-s", "-o", str(out)]
        subprocess.run(command, check=True)
        return out.read_bytes()


def unavailable() -> str | None:
    """Why there can be no stand-in for Windows here; None if there can."""
    return None if shutil.which(COMPILER) else f"needs {COMPILER} (Debian: g++-mingw-w64-x86-64-posix)"

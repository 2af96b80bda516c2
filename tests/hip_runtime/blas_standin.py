# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-ins for libhipblas.so and libhipblaslt.so: built once per test run and loaded into this process,
where the real hip-python finds them by name. blas.h says what they can be made to do wrong.
"""

import ctypes
import importlib.util
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.hip_runtime import standin

_FOLDER = Path(__file__).resolve().parent
NAMES = ("hipblas", "hipblaslt")


def unavailable() -> str | None:
    """Why they cannot be used here; None if they can."""
    for name in NAMES:
        if (
            importlib.util.find_spec("rocm") is None
            or importlib.util.find_spec(f"rocm.bindings.{name}") is None
        ):
            return f"needs the {name} binding: pip install 'hip-python[libraries]>=10'"
    return standin.unavailable()


def build(folder: Path, *defines: str) -> Path:
    """`folder` with lib/libhipblas.so and lib/libhipblaslt.so, a ROCM_PATH. Built unless it is there: several
    processes may ask for the same one. defines: WITHOUT_MATMUL, WITHOUT_WORKSPACE leave a function out."""
    if (folder / "lib").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        library = Path(temporary) / "rocm" / "lib"
        library.mkdir(parents=True)
        for name in NAMES:
            flags = [
                "-std=c++20",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-function",
                "-fPIC",
                "-shared",
                "-pthread",
            ]
            flags += [f"-D{define}" for define in defines]
            command = ["c++", *flags, str(_FOLDER / f"{name}.cc"), "-o", str(library / f"lib{name}.so")]
            done = subprocess.run(
                [*command, f"-Wl,-soname,lib{name}.so", "-ldl"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"the stand-in for {name} does not compile:\n{done.stderr}")
        try:
            library.parent.rename(folder)
        except OSError:
            if not (folder / "lib").exists():  # else another process was faster
                raise
    return folder


class Control:
    """What tests tell a stand-in."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._before = 0

    def reset(self) -> None:
        """Do nothing wrong, and count anew."""
        self.fail("")
        self._before += self.alive

    def fail(self, failure: str, algorithm: int = -1) -> None:
        """Do something wrong from now on, at one algorithm or all; "" for nothing. See blas.h."""
        self._library.standin_blas_fail(failure.encode(), algorithm)

    @property
    def alive(self) -> int:
        """Handles and descriptors that were created since `reset` and not destroyed."""
        return int(self._library.standin_blas_alive()) - self._before


@cache
def load(folder: Path) -> dict[str, Control]:
    """Both, by name."""
    build(folder)
    return {name: Control(ctypes.CDLL(str(folder / "lib" / f"lib{name}.so"))) for name in NAMES}

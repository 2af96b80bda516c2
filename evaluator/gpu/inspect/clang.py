# SPDX-License-Identifier: GPL-3.0-or-later
"""The clang that compiles kernels for an AMD target without ROCm.

It is clang-19 where that knows the target, because its code is what the emulator tests run. Newer targets
(gfx950) need a newer clang: Debian's, or the one in the package ziglang of PyPI.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ALONE = ("--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib")
"""Options for a code object of one target. The kernels need no header of ROCm and no device library."""

_LINKER = "ld.lld-19"
_CLANGS = (("clang-19",), ("clang-20",), ("clang-21",), ("clang-22",))


def unavailable(target: str) -> str | None:
    """Return why there is no compiler for a target, such as gfx1100; None if there is one."""
    missing = [name for name in ("clang-19", _LINKER) if shutil.which(name) is None]
    if missing:
        return f"needs {' and '.join(missing)} (apt-get install clang-19 lld-19)"
    if _clang(target) is None:
        return f"needs a newer clang than clang-19, which does not know {target} (pip install ziglang)"
    return None


def command(target: str, folder: Path) -> list[str]:
    """Return the start of a command that compiles HIP for a target. folder: an existing one, for a link to
    the linker."""
    found = _clang(target)
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


def _clang(target: str) -> Sequence[str] | None:
    """Return the first clang that knows a target."""
    return next((each for each in (*_CLANGS, *_ziglang()) if target in _targets(each)), None)


def _ziglang() -> list[tuple[str, ...]]:
    """Return the command of ziglang's clang, if the package is installed."""
    spec = importlib.util.find_spec("ziglang")
    return [] if spec is None or spec.origin is None else [(str(Path(spec.origin).with_name("zig")), "clang")]


@cache
def _targets(clang: tuple[str, ...]) -> frozenset[str]:
    if shutil.which(clang[0]) is None:
        return frozenset()
    query = ["-nogpulib", "--print-supported-cpus", "--target=amdgcn-amd-amdhsa"]
    done = subprocess.run([*clang, *query], capture_output=True, text=True, check=False)
    return frozenset((done.stdout + done.stderr).split())

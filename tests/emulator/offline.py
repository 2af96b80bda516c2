# SPDX-License-Identifier: GPL-3.0-or-later
"""What hipRTC does on a machine with ROCm, without it: the same source and options to a code object.

The environment variable AMD_COMPILER names the compiler: clang-19, clang-22 or rocm. By default it is
clang-19, or a newer clang for targets that clang-19 does not know (scripts/amd_compilers.py).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts import amd_compilers

COMPILER = os.environ.get("AMD_COMPILER", "")

_TARGET = "--offload-arch="


def compile_offline(source: str, options: Sequence[str]) -> bytes:
    """options: as given to hipRTC, --offload-arch among them. Raises CompilationError."""
    target = next(option for option in options if option.startswith(_TARGET)).removeprefix(_TARGET)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.hip"
        path.write_text(source, "utf-8")
        out = path.with_suffix(".co")
        amd_compilers.compile_file(path, target.partition(":")[0], options, out, COMPILER)
        return out.read_bytes()

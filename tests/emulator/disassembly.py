# SPDX-License-Identifier: GPL-3.0-or-later
"""The instructions of a code object as text, by LLVM's disassembler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.emulator.code_object import target_of

_LINE = re.compile(r"^\t(.*?)\s*// ([0-9A-F]+): ", re.MULTILINE)


def disassemble(code: bytes) -> dict[int, str] | None:
    """Return the text of each instruction of a code object by its address in there; None if there is no
    disassembler that knows the target (gfx950 needs llvm-objdump-20)."""
    program = _program(first_version=20 if target_of(code) == "gfx950" else 19)
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.co"
        path.write_bytes(code)
        text = subprocess.run([program, "-d", str(path)], capture_output=True, text=True, check=True).stdout
    return {int(address, 16): instruction for instruction, address in _LINE.findall(text)}


@cache
def _program(first_version: int) -> str | None:
    names = (f"llvm-objdump-{version}" for version in range(first_version, 24))
    return next((name for name in names if shutil.which(name) is not None), None)

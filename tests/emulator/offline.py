# SPDX-License-Identifier: GPL-3.0-or-later
"""What hipRTC does on a machine with ROCm, by clang alone: the same source and options to a code object."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.inspect import clang

_TARGET = "--offload-arch="


def compile_offline(source: str, options: Sequence[str]) -> bytes:
    """options: as given to hipRTC, --offload-arch among them. Raises CompilationError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.hip"
        path.write_text(source, "utf-8")
        target = next(option for option in options if option.startswith(_TARGET)).removeprefix(_TARGET)
        command = clang.command(target.partition(":")[0], path.parent)
        run = subprocess.run(
            [*command, *options, str(path), "-o", str(path.with_suffix(".co"))],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise CompilationError(run.stderr)
        return path.with_suffix(".co").read_bytes()

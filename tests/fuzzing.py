# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that do things at random, built with sanitizers and run."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.programs import run

FLAGS = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow", f"-I{REPOSITORY / 'tests'}"]


def found_compiler() -> str:
    """The C++ compiler; skips the test where there is none."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    return compiler


def built(program: Path, sources: Sequence[Path], includes: Sequence[Path], sanitizers: str) -> Path:
    """Compile a program, each source by itself and from ccache's cache where that is installed; returns its
    path. sanitizers: as of -fsanitize."""
    compiler = [found_compiler(), f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-pthread"]
    cached = [shutil.which("ccache") or "env"]
    flags = [*FLAGS, *(f"-I{folder}" for folder in includes)]

    def compiled(numbered: tuple[int, Path]) -> Path:
        number, source = numbered
        made = program.with_name(f"{program.name}-{number}.o")
        subprocess.run([*cached, *compiler, *flags, "-c", source, "-o", made], check=True)
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, enumerate(sources)))
    subprocess.run([*compiler, *objects, "-o", program], check=True)
    return program


def numbers_of(program: Path, rounds: int, seed: int) -> list[int]:
    """Run a program, which has to end well and to have seen something of each kind of thing; how many it has
    seen of each."""
    done = run(program, rounds, seed, timeout=None)
    assert done.stderr == ""
    numbers = [int(word) for word in done.stdout.split() if word.isdigit()]
    assert min(numbers) > 0, done.stdout
    return numbers

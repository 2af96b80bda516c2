"""Programs that do things at random, built with sanitizers and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

FLAGS = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow", f"-I{REPOSITORY / 'tests'}"]


def found_compiler() -> str:
    """The C++ compiler; skips the test where there is none."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    return compiler


def built(program: Path, sources: Sequence[Path], includes: Sequence[Path], sanitizers: str) -> Path:
    """Compile a program; returns its path. sanitizers: as of -fsanitize."""
    sanitize = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    folders = [f"-I{folder}" for folder in includes]
    command: list[str | Path] = [found_compiler(), *FLAGS, *folders, *sanitize, "-pthread", *sources]
    subprocess.run([*command, "-o", program], check=True)
    return program


def numbers_of(program: Path, rounds: int, seed: int) -> list[int]:
    """Run a program, which has to end well and to have seen something of each kind of thing; how many it has
    seen of each."""
    done = subprocess.run([program, str(rounds), str(seed)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    numbers = [int(word) for word in done.stdout.split() if word.isdigit()]
    assert min(numbers) > 0, done.stdout
    return numbers

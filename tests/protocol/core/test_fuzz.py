"""Readers of streams and headers, and both ends of connections, at random in a program with sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

CORE = REPOSITORY / "protocol" / "core"
ROUNDS, SEED = 1000, 1

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="there are such connections on Linux only"),
]


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_streams_of_any_kind_are_read_and_answered(sanitizers: str, tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    flags = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow", f"-I{CORE}", "-pthread"]
    program = tmp_path / "fuzz"
    subprocess.run(
        [
            compiler,
            *flags,
            f"-fsanitize={sanitizers}",
            "-fno-sanitize-recover=all",
            *sorted([*CORE.glob("header/*.cc"), *CORE.glob("zmtp/*.cc")]),
            Path(__file__).with_name("fuzz.cc"),
            *("-o", program),
        ],
        check=True,
    )
    done = subprocess.run([program, str(ROUNDS), str(SEED)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    numbers = [int(word) for word in done.stdout.split() if word.isdigit()]
    assert len(numbers) == 6
    assert min(numbers) > 0, done.stdout  # So each kind of thing was seen.

# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged and forged files of trees, in a program built with AddressSanitizer and UBSan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.core.tree.test_fuzz import CORE, GROUPS
from tests.fuzzing import built

ROUNDS = 60
SEED = 1

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        sys.platform != "linux", reason="the sanitizers' flags are those of GCC and Clang on Linux"
    ),
]


def test_no_file_breaks_a_tree(tmp_path: Path) -> None:
    sources = [path for group in GROUPS for path in sorted((CORE / group).glob("*.cc"))]
    sources.append(Path(__file__).with_name("fuzz_file.cc"))
    program = built(tmp_path / "fuzz_file", sources, [CORE], "address,undefined")
    done = subprocess.run(
        [program, str(ROUNDS), str(SEED), tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused, loaded = (int(word) for word in done.stdout.split()[1::2])
    assert min(refused, loaded) > 20

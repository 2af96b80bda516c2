# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of streams and headers, and both ends of connections, at random in a program with sanitizers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzzing import built, numbers_of
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
    sources = sorted([*CORE.glob("header/*.cc"), *CORE.glob("zmtp/*.cc")])
    program = built(tmp_path / "fuzz", [*sources, Path(__file__).with_name("fuzz.cc")], [CORE], sanitizers)
    assert len(numbers_of(program, ROUNDS, SEED)) == 6

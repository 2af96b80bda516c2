# SPDX-License-Identifier: GPL-3.0-or-later
"""Bursts with evaluators of all kinds at random, in a program with sanitizers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzzing import built, numbers_of
from tests.paths import REPOSITORY

ENGINE, WIRE = REPOSITORY / "engine" / "core", REPOSITORY / "protocol" / "core"
GROUPS = (
    *(ENGINE / group for group in ("chess", "encoding", "mate", "syzygy", "tree", "exchange")),
    *(WIRE / group for group in ("header", "zmtp")),
)
ROUNDS, SEED = 60, 1

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="there are such connections on Linux only"),
]


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_burst_counts_are_right_for_random_messages(sanitizers: str, tmp_path: Path) -> None:
    sources = [source for group in GROUPS for source in sorted(group.glob("*.cc"))]
    sources.append(Path(__file__).with_name("fuzz.cc"))
    program = built(tmp_path / "fuzz", sources, [ENGINE, WIRE], sanitizers)
    assert len(numbers_of(program, ROUNDS, SEED)) == 6

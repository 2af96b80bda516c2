# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's reader of frames, its queue, its accounts and its choice of who makes room, on random input in a
program with sanitizers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzzing import built, numbers_of
from tests.paths import REPOSITORY

CORE = REPOSITORY / "evaluator" / "core"
ROUNDS, SEED = 2000, 1

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="there is a gate on Linux only"),
]


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_streams_of_any_kind_are_read_and_counted(sanitizers: str, tmp_path: Path) -> None:
    names = ("admission", "bell", "blocks", "byte_account", "lobby", "zmtp")
    wire = REPOSITORY / "protocol" / "core"
    sources = [*(CORE / "gate" / f"{name}.cc" for name in names), wire / "zmtp" / "framing.cc"]
    program = built(
        tmp_path / "fuzz",
        [*sources, Path(__file__).with_name("fuzz.cc")],
        [CORE, wire],
        sanitizers,
    )
    assert len(numbers_of(program, ROUNDS, SEED)) == 5

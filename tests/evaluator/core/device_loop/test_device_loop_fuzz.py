# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations without the interpreter, for clients and by drivers of all kinds at random, in a program with
sanitizers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzzing import built, numbers_of
from tests.paths import REPOSITORY

EVALUATOR, WIRE = REPOSITORY / "evaluator" / "core", REPOSITORY / "protocol" / "core"
FILES = (
    EVALUATOR / "device_batch.cc",
    EVALUATOR / "request.cc",
    *sorted((EVALUATOR / "device_loop").glob("*.cc")),
    *sorted((WIRE / "header").glob("*.cc")),
    *sorted((WIRE / "zmtp").glob("*.cc")),
)
ROUNDS, SEED = 40, 1

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="there are such connections on Linux only"),
]


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_everything_is_answered_once_and_rightly(sanitizers: str, tmp_path: Path) -> None:
    sources = [*FILES, Path(__file__).with_name("fuzz.cc")]
    program = built(tmp_path / "fuzz", sources, [EVALUATOR, WIRE], sanitizers)
    assert len(numbers_of(program, ROUNDS, SEED)) == 8

# SPDX-License-Identifier: GPL-3.0-or-later
"""The invariants of the tree under random use, in a program built with AddressSanitizer and UBSan."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine._core import SearchParams
from engine.options import Options
from engine.search.tree import search_params
from tests.fuzzing import built, numbers_of
from tests.paths import REPOSITORY

CORE = REPOSITORY / "engine" / "core"
GROUPS = ("chess", "encoding", "mate", "syzygy", "tree")
ROUNDS = 60
SEED = 1
SHIPPED = {
    "transposition_visits": 16,
    "value_choice_share": 0.2,
    "value_choice_deviations": 2.0,
    "solves_endings": True,
}
"""The options' defaults where they are not the core's, as set_shipped_defaults of fuzz.cc has them."""

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        sys.platform != "linux", reason="the sanitizers' flags are those of GCC and Clang on Linux"
    ),
]


def test_nothing_that_is_done_to_a_tree_breaks_it(tmp_path: Path) -> None:
    sources = [path for group in GROUPS for path in sorted((CORE / group).glob("*.cc"))]
    sources.append(Path(__file__).with_name("fuzz.cc"))
    program = built(tmp_path / "fuzz", sources, [CORE], "address,undefined")
    assert len(numbers_of(program, ROUNDS, SEED)) == 15


def test_the_shipped_defaults_are_among_the_settings_tried() -> None:
    core = SearchParams()
    shipped = search_params(Options(), core.input_format)
    names = [name for name in dir(core) if not name.startswith("_")]
    differing = {
        name: getattr(shipped, name) for name in names if getattr(shipped, name) != getattr(core, name)
    }
    assert differing == pytest.approx(SHIPPED)

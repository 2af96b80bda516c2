# SPDX-License-Identifier: GPL-3.0-or-later
"""Which clang compiles for a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.gpu.inspect import clang


def test_clang_19_compiles_for_every_target_that_it_knows(tmp_path: Path) -> None:
    if reason := clang.unavailable("gfx1100"):
        pytest.skip(reason)
    assert clang.command("gfx1100", tmp_path)[0] == "clang-19"
    assert not list(tmp_path.iterdir())


def test_a_newer_clang_compiles_for_gfx950_and_finds_the_linker(tmp_path: Path) -> None:
    if reason := clang.unavailable("gfx950"):
        pytest.skip(reason)
    command = clang.command("gfx950", tmp_path)
    assert command[0] != "clang-19"
    assert f"-B{tmp_path}" in command
    assert (tmp_path / "lld").exists()


def test_a_target_that_no_clang_knows_needs_a_newer_one() -> None:
    if reason := clang.unavailable("gfx1100"):
        pytest.skip(reason)
    assert "does not know gfx1399 (pip install ziglang)" in (clang.unavailable("gfx1399") or "")

# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory that a process may use, and the default of the search tree in it."""

from pathlib import Path

import psutil
import pytest

from engine.options import Options
from engine.search.player.memory import cache_megabytes, tree_megabytes
from protocol.common import memory


@pytest.fixture(autouse=True)
def forget() -> None:
    memory.process_memory.cache_clear()


def place(monkeypatch: pytest.MonkeyPatch, folder: Path, memberships: str, limits: dict[str, str]) -> None:
    (folder / "self").write_text(memberships)
    for file, text in limits.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    monkeypatch.setattr(memory, "CGROUPS", folder)
    monkeypatch.setattr(memory, "MEMBERSHIPS", folder / "self")


def test_memory_is_that_of_machine_without_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place(monkeypatch, tmp_path, "0::/user\n", {"user/memory.max": "max\n"})
    assert memory.process_memory() == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("memberships", "limits"),
    [
        ("0::/a/b\n", {"a/memory.max": "400000000", "a/b/memory.max": "max"}),
        ("0::/a/b\n", {"memory.max": "400000000"}),
        ("3:cpu:/x\n4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "400000000"}),
        ("4:cpu,memory:/a\n", {"memory/memory.limit_in_bytes": "400000000"}),
    ],
)
def test_memory_is_the_smallest_limit_of_a_cgroup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memberships: str, limits: dict[str, str]
) -> None:
    place(monkeypatch, tmp_path, memberships, limits)
    assert memory.process_memory() == 400_000_000
    assert tree_megabytes(Options()) == 95
    assert tree_megabytes(Options(tree_memory=1000)) == 1000
    assert [cache_megabytes(Options(tree_memory=mb)) for mb in (100, 1000, 2000)] == [64, 125, 200]
    assert cache_megabytes(Options(tree_memory=100, hash=300)) == 300

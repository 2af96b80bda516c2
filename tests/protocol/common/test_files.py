# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomic writing: the whole content or the old one, and nothing left behind."""

from pathlib import Path

import pytest

from protocol.common.files import UNFINISHED, check_name, write_atomically


@pytest.mark.parametrize("durable", [False, True])
def test_writes_the_content_and_nothing_else(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "new" / "folder" / "file.bin"
    write_atomically(path, b"old", durable=durable)
    write_atomically(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_content_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.mkdir()  # A folder cannot be replaced by a file.
    with pytest.raises(OSError, match=r"file\.bin"):
        write_atomically(path, b"new")
    assert list(tmp_path.iterdir()) == [path]
    assert not list(tmp_path.rglob(f"*{UNFINISHED}"))


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    write_atomically(path, b"data")
    plain = tmp_path / "plain"
    plain.write_bytes(b"data")
    assert path.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("name", ["NUL.txt", "con.txt", "games.", "games ", "COM1.pgn"])
def test_check_name_refuses_names_that_windows_changes(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="choose another"):
        check_name(tmp_path / name, windows=True)
    check_name(tmp_path / "contents.pgn", windows=True)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard of users' files."""

import os
from pathlib import Path

import pytest

from protocol.common.outputs import (
    OutputError,
    guard_apart,
    guard_output,
    guard_run,
    is_figure,
    named_files,
    same_file,
    save_figure,
)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text("mine", "utf-8")
    return path


def other_names(path: Path) -> list[Path]:
    """Return further names of a file: links and spellings."""
    symbolic, hard = path.with_name("symbolic"), path.with_name("hard")
    symbolic.symlink_to(path)
    hard.hardlink_to(path)
    folder = path.with_name("folder")
    folder.symlink_to(path.parent)
    return [symbolic, hard, folder / path.name, Path(os.path.relpath(path)), path.parent / "folder/.." / path]


def test_a_file_that_is_read_is_never_written_under_any_name(mine: Path) -> None:
    for name in other_names(mine):
        for path, read in ((mine, name), (name, mine)):
            with pytest.raises(OutputError, match="also read"):
                guard_output(path, [read], overwrite=True, own=lambda content: True)


def test_names_of_a_file_that_does_not_exist_yet_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert same_file(tmp_path / "new", tmp_path / "." / "link")
    assert not same_file(tmp_path / "new", tmp_path / "other")
    with pytest.raises(OutputError):
        guard_apart([tmp_path / "new", tmp_path / "link"], [])


def test_a_foreign_file_is_refused_unless_overwriting_is_allowed(mine: Path) -> None:
    with pytest.raises(OutputError, match=r"mine\.txt.*--overwrite"):
        guard_output(mine)
    with pytest.raises(OutputError):
        guard_output(mine, own=lambda content: content == b"yours")
    guard_output(mine, overwrite=True)
    guard_output(mine, own=lambda content: content == b"mine")


def test_new_and_empty_files_and_devices_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path in (tmp_path / "empty", tmp_path / "new", Path(os.devnull)):
        guard_output(path)


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="folder"):
        guard_output(tmp_path, overwrite=True)


def test_a_run_owns_its_files_when_its_journal_exists(mine: Path) -> None:
    journal = mine.with_name("journal")
    with pytest.raises(OutputError):
        guard_run(journal, [mine])
    journal.touch()
    guard_run(journal, [mine])


def test_files_are_found_wherever_settings_name_them(mine: Path) -> None:
    data = {"a": [{"weights": str(mine)}], "b": ("", "no file", "x" * 5000, "\0", 3, None), "c": mine}
    assert list(named_files(data)) == [mine, mine]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plots_are_recognised_by_their_content(tmp_path: Path, suffix: str) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    path = tmp_path / f"plot.{suffix}"
    save_figure(figures.Figure(), path)
    assert is_figure(path.read_bytes())
    figures.Figure().savefig(path)
    assert not is_figure(path.read_bytes())

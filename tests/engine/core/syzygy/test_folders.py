# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tables folders have."""

from pathlib import Path
from shutil import copyfile

from engine._core import Game, Tablebases
from tests.paths import TABLES

QUEEN = Game("8/8/8/8/8/2k5/8/KQ6 w - - 0 1")
ROOK = Game("8/8/8/8/8/2k5/8/KR6 w - - 0 1")


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        copyfile(TABLES / name, folder / name)
    return folder


def test_folders_complete_each_other(tmp_path: Path) -> None:
    values = folder_with(tmp_path / "values", "KQvK.rtbw", "KRvK.rtbw")
    distances = folder_with(tmp_path / "distances", "KQvK.rtbz")
    tables = Tablebases([values, distances])
    assert (tables.wdl_tables, tables.dtz_tables, tables.most_men) == (2, 1, 3)
    assert (tables.probe_wdl(QUEEN), tables.probe_dtz(QUEEN)) == (2, 11)
    assert (tables.probe_wdl(ROOK), tables.probe_dtz(ROOK)) == (2, None)


def test_of_two_files_with_one_name_the_first_folder_counts(tmp_path: Path) -> None:
    good = folder_with(tmp_path / "good", "KQvK.rtbw")
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "KQvK.rtbw").write_bytes(b"nothing")
    assert Tablebases([good, bad]).probe_wdl(QUEEN) == 2
    assert Tablebases([bad, good]).probe_wdl(QUEEN) is None
    assert Tablebases([good, bad]).wdl_tables == 1


def test_missing_folders_are_harmless(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    tables = Tablebases([nowhere, TABLES, tmp_path / "KQvK.rtbw"])
    assert tables.missing_folders == [nowhere, tmp_path / "KQvK.rtbw"]
    assert tables.probe_wdl(QUEEN) == 2


def test_other_files_are_skipped(tmp_path: Path) -> None:
    for name in (
        "KQvK.txt",
        "KvK.rtbw",
        "QvK.rtbw",
        "KQK.rtbw",
        "KXvK.rtbw",
        "KQRBNPPvK.rtbw",
        "vK.rtbw",
        ".rtbw",
    ):
        (tmp_path / name).write_bytes(b"")
    tables = Tablebases([tmp_path])
    assert (tables.wdl_tables, tables.dtz_tables, tables.most_men) == (0, 0, 0)
    assert tables.probe_wdl(QUEEN) is None
    assert tables.take_complaints() == []


def test_no_folder_at_all() -> None:
    assert Tablebases([]).probe_wdl(QUEEN) is None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are no tables, or not whole: left out, named once, and never read beyond their end."""

from pathlib import Path
from random import Random
from shutil import copyfile

import pytest

from engine._core import Game, Tablebases
from tests.engine.core.syzygy.positions import random_position
from tests.engine.core.syzygy.table_writer import Distances, write_table
from tests.paths import TABLES

SEVERAL_PARTS = "KPPvKP"
"""Without captures its positions need no other table."""


def games(name: str, count: int = 20) -> list[Game]:
    random = Random(name)
    return [Game(random_position(name, random).fen()) for _ in range(count)]


def copies(folder: Path, name: str) -> list[Path]:
    """Copies of all true tables; returns those of a material, which tests may write to."""
    for path in TABLES.glob("*.rtb?"):
        (folder / path.name).write_bytes(path.read_bytes())
    return [folder / f"{name}.rtbw", folder / f"{name}.rtbz"]


def probe(folder: Path, positions: list[Game]) -> tuple[list[tuple[int | None, int | None]], list[str]]:
    """Values and distances of positions, and the complaints about files."""
    tables = Tablebases([folder])
    found = [(tables.probe_wdl(game), tables.probe_dtz(game)) for game in positions]
    complaints = tables.take_complaints()
    assert tables.take_complaints() == []
    assert len(complaints) <= 2  # One for each file.
    return found, complaints


def cuts(size: int, random: Random) -> list[int]:
    """Where to cut a file: everywhere in its header, and here and there behind it."""
    return [
        *range(min(size, 120)),
        *random.sample(range(size), min(size, 80)),
        size - 1,
        size - 16,
        size - 64,
    ]


@pytest.mark.parametrize("name", ["KQvK", "KQvKR", "KPvKP", "KRvK"])
def test_files_that_are_cut_short_are_omitted(name: str, tmp_path: Path) -> None:
    positions = games(name)
    wdl, dtz = copies(tmp_path, name)
    right, complaints = probe(tmp_path, positions)
    assert complaints == []
    for path in (wdl, dtz):
        whole = path.read_bytes()
        for end in cuts(len(whole), Random(name)):
            path.write_bytes(whole[:end])
            found, complaints = probe(tmp_path, positions)
            assert len(complaints) == 1 and path.name in complaints[0], end
            for (value, distance), (right_value, _) in zip(found, right, strict=True):
                # What needs the file is unknown; a capture that wins does without.
                assert value in (None, right_value) if path == wdl else value == right_value
                assert distance is None or path == wdl or abs(distance) in (0, 1)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["KQvKR", "KPvKP"])
def test_changed_bytes_do_no_harm(name: str, tmp_path: Path) -> None:
    random = Random(name)
    positions = games(name)
    for path in copies(tmp_path, name):
        whole = path.read_bytes()
        for nth in range(250):
            changed = bytearray(whole)
            for _ in range(random.choice((1, 1, 3))):
                place = random.randrange(200) if nth % 2 else random.randrange(len(whole))
                changed[place] = random.randrange(256)
            path.write_bytes(changed)
            probe(tmp_path, positions)
        path.write_bytes(whole)


def test_changed_bytes_of_large_tables_do_no_harm(tmp_path: Path) -> None:
    random = Random(1)
    positions = games(SEVERAL_PARTS)
    lists = Distances(lists=[[1, 2, 3, 4, 5]] * 4, wide=True)
    wdl, dtz = tmp_path / f"{SEVERAL_PARTS}.rtbw", tmp_path / f"{SEVERAL_PARTS}.rtbz"
    write_table(wdl, random)
    write_table(dtz, random, distances=lists)
    for path in (wdl, dtz):
        whole = path.read_bytes()
        for _ in range(60):
            place = random.randrange(1000)
            path.write_bytes(whole[:place] + random.randbytes(2) + whole[place + 2 :])
            probe(tmp_path, positions)
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is no Syzygy table"),
        (b"\x71\xe8\x23", "it is no Syzygy table"),
        (b"MZ" * 104, "it is no Syzygy table"),
        (b"\x71\xe8\x23\x5d" + bytes(75), "it is cut short"),
        (b"\x71\xe8\x23\x5d" + bytes(76), "it belongs to other material than its name says"),
        (b"\x71\xe8\x23\x5d\x01" + bytes(75), "it names an unknown man"),
        (b"\x71\xe8\x23\x5d\x01\x00\x11\x22\x33" + bytes(71), "it has not one king on each side"),
    ],
)
def test_the_complaint_says_what_is_wrong(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "KQvK.rtbw"
    path.write_bytes(content)
    tables = Tablebases([tmp_path])
    assert tables.probe_wdl(Game("8/8/8/8/8/2k5/8/KQ6 w - - 0 1")) is None
    assert tables.take_complaints() == [f"tablebase {path} is not used: {reason}"]


def test_a_table_of_other_material_is_omitted(tmp_path: Path) -> None:
    copyfile(TABLES / "KRvK.rtbw", tmp_path / "KQvK.rtbw")
    _, complaints = probe(tmp_path, games("KQvK"))
    assert len(complaints) == 1 and "it belongs to other material than its name says" in complaints[0]


def test_a_file_that_cannot_be_read_is_omitted(tmp_path: Path) -> None:
    (tmp_path / "KQvK.rtbw").mkdir()
    (tmp_path / "KRvK.rtbw").symlink_to(tmp_path / "nothing")
    for name, reason in (("KQvK", "not a file"), ("KRvK", "No such file")):
        _, complaints = probe(tmp_path, games(name))
        assert len(complaints) == 1 and reason in complaints[0]


def test_a_table_without_its_distances_still_has_values(tmp_path: Path) -> None:
    for name in ("KQvK", "KRvK"):
        copyfile(TABLES / f"{name}.rtbw", tmp_path / f"{name}.rtbw")
    found, complaints = probe(tmp_path, [Game("8/8/8/8/8/2k5/8/KQ6 w - - 0 1")])
    assert (found, complaints) == ([(2, None)], [])

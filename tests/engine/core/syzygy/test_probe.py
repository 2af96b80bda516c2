# SPDX-License-Identifier: GPL-3.0-or-later
"""Values and distances of positions, against python-chess and recorded results."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import copyfile

import chess
import chess.syzygy
import pytest

from engine._core import Game, Tablebases
from tests.engine.core.syzygy.positions import random_position
from tests.paths import TABLES

POSITIONS = 200
"""Of each table."""

NAMES = sorted(path.stem for path in TABLES.glob("*.rtbw"))


@pytest.fixture(scope="module")
def tables() -> Tablebases:
    return Tablebases([TABLES])


@pytest.fixture(scope="module")
def oracle() -> Iterator[chess.syzygy.Tablebase]:
    with chess.syzygy.open_tablebase(str(TABLES)) as opened:
        yield opened


def compare(board: chess.Board, tables: Tablebases, oracle: chess.syzygy.Tablebase) -> None:
    game = Game(board.fen())
    found = tables.probe_wdl(game), tables.probe_dtz(game)
    assert found == (oracle.probe_wdl(board), oracle.probe_dtz(board)), board.fen()


@pytest.mark.parametrize("name", NAMES)
def test_values_and_distances_are_those_of_another_prober(
    name: str, tables: Tablebases, oracle: chess.syzygy.Tablebase
) -> None:
    random = Random(name)
    for _ in range(POSITIONS):
        compare(random_position(name, random), tables, oracle)


def test_captures_en_passant_count(tables: Tablebases, oracle: chess.syzygy.Tablebase) -> None:
    random = Random(1)
    for _ in range(500):
        compare(random_position("KPvKP", random, en_passant=True), tables, oracle)


@pytest.mark.parametrize(
    ("fen", "wdl", "dtz"),
    [
        ("8/8/8/8/8/4k3/8/4K3 w - - 0 1", 0, 0),  # bare kings need no table
        ("7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", -2, -1),  # mate
        ("k7/1Q6/8/8/8/8/8/7K b - - 0 1", 0, 0),  # the queen is lost
        ("k7/8/1Q6/8/8/8/8/7K b - - 0 1", 0, 0),  # stalemate
        ("8/8/8/8/8/2k5/8/KQ6 w - - 99 1", 2, 11),  # the clock is not looked at
    ],
)
def test_simple_positions(fen: str, wdl: int, dtz: int, tables: Tablebases) -> None:
    assert (tables.probe_wdl(Game(fen)), tables.probe_dtz(Game(fen))) == (wdl, dtz)


@pytest.mark.parametrize(
    "fen",
    [
        "4k3/8/8/8/8/8/8/4K2R w K - 0 1",  # castling rights
        "8/8/8/8/8/2k5/1p6/KQ4R1 w - - 0 1",  # five men, and only tables of four
        chess.STARTING_FEN,
    ],
)
def test_positions_without_a_table(fen: str, tables: Tablebases) -> None:
    assert tables.probe_wdl(Game(fen)) is None
    assert tables.probe_dtz(Game(fen)) is None


def test_chess960_castling_rights_count_as_well(tables: Tablebases) -> None:
    assert tables.probe_wdl(Game("4k3/8/8/8/8/8/8/2K2R2 w F - 0 1", chess960=True)) is None
    assert tables.probe_wdl(Game("4k3/8/8/8/8/8/8/2K2R2 w - - 0 1", chess960=True)) == 2


def test_a_position_in_which_the_king_could_be_taken_has_no_value(tables: Tablebases) -> None:
    game = Game("4k3/8/8/8/8/8/8/K3R3 w - - 0 1", allow_opponent_check=True)
    assert tables.probe_wdl(game) is None and tables.probe_dtz(game) is None


def test_probe_needs_the_tables_after_a_capture(tmp_path: Path) -> None:
    for suffix in (".rtbw", ".rtbz"):
        copyfile(TABLES / f"KQvKR{suffix}", tmp_path / f"KQvKR{suffix}")
    tables = Tablebases([tmp_path])
    assert tables.probe_wdl(Game("8/8/8/3k4/8/8/1Q6/K6r w - - 0 1")) is not None
    assert tables.probe_wdl(Game("8/8/8/3k4/8/8/7Q/K6r w - - 0 1")) is None  # KQvK is not there

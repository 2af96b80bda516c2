# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of five men and more: files with random values, read by python-chess as well."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import chess
import chess.syzygy
import pytest

from engine._core import Game, Tablebases
from tests.engine.core.syzygy.positions import random_position
from tests.engine.core.syzygy.table_writer import Distances, write_table

PIECES = ("KRBvKN", "KQQvKR", "KNNNvK", "KBBvKNN", "KRNvKRN", "KRBNvKQ", "KNNNNNvK")
PAWNS = ("KRPvKR", "KPPvKP", "KPPvKPP", "KPPPPvK", "KNPPvKP", "KPPPPPvK")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not stay: the files have up to a hundred megabytes."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def is_quiet(board: chess.Board) -> bool:
    """Whether a position's value is the stored one: there is a move, but no capture nor promotion."""
    moves = list(board.legal_moves)
    return bool(moves) and not any(board.is_capture(move) or move.promotion for move in moves)


def stays_quiet(board: chess.Board) -> bool:
    """The same after each pawn move, whose values tell whether the stored distance counts."""
    for move in list(board.generate_legal_moves(board.pawns)):
        board.push(move)
        quiet = is_quiet(board)
        board.pop()
        if not quiet:
            return False
    return True


def quiet_position(name: str, random: Random) -> chess.Board:
    """A random position of which nothing but its own table is needed."""
    while True:
        board = random_position(name, random)
        if is_quiet(board) and stays_quiet(board):
            return board


@pytest.mark.integration
@pytest.mark.parametrize("name", PIECES + PAWNS)
def test_values(name: str, folder: Path) -> None:
    random = Random(name)
    write_table(folder / f"{name}.rtbw", random)
    tables = Tablebases([folder])
    seen = set()
    with chess.syzygy.open_tablebase(str(folder)) as oracle:
        for _ in range(300):
            board = quiet_position(name, random)
            value = tables.probe_wdl(Game(board.fen()))
            assert value == oracle.probe_wdl_table(board), board.fen()
            seen.add(value)
    assert len(seen) >= 4
    assert tables.take_complaints() == []


DISTANCES = {
    "plain": Distances(),
    "in plies": Distances(plies=3),
    "wins in plies": Distances(side=1, plies=1),
    "lists": Distances(lists=[[5, 1, 9, 30, 2], [6] * 7, [50, 60, 70, 80, 90], [1, 2, 3, 4, 5, 6]]),
    "wide lists": Distances(1, [[500, 1, 9, 300, 2], [6000, 5, 4, 3, 2, 1], [7] * 5, [9] * 9], True, 2),
}


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("name", ["KRBvKN", "KRvKR", "KNPvKP", "KPPvKPP"])
def test_distances(name: str, kind: str, folder: Path) -> None:
    distances = DISTANCES[kind]
    if name == "KPPvKPP":  # With pawns and the same men on both sides, files have White to move.
        distances = replace(distances, side=0)
    random = Random(f"{name} {kind}")
    pawns = "P" in name
    # With pawns a position's value depends on those after its pawn moves, which random ones would contradict:
    # a win for whoever is to move, so that no pawn move wins.
    only = random.choice((3, 4)) if pawns else None
    write_table(folder / f"{name}.rtbw", random, only_value=only)
    write_table(folder / f"{name}.rtbz", random, distances=distances)
    tables = Tablebases([folder])
    compared = 0
    with chess.syzygy.open_tablebase(str(folder)) as oracle:
        while compared < 100:
            board = quiet_position(name, random)
            wdl = oracle.probe_wdl_table(board)
            if wdl != 0 and oracle.probe_dtz_table(board, wdl)[1] < 0:
                continue  # The other side to move, whose distances follow from these: true tables test it.
            compared += 1
            assert tables.probe_dtz(Game(board.fen())) == oracle.probe_dtz(board), board.fen()
    assert tables.take_complaints() == []

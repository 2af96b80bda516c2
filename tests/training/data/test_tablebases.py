# SPDX-License-Identifier: GPL-3.0-or-later
"""Games are played again to positions with few men, and tablebases tell their results."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from engine._core import Game, Tablebases
from engine.apps.shards.move_codes import move_code, uci_move
from engine.apps.shards.shard import Shard
from tests.paths import TABLES
from tests.training.labels import labelled_shard
from training.config import DataSettings, TargetSettings
from training.data.reading import table_of
from training.data.replay import games_at
from training.data.tablebases import open_tablebases, result_of
from training.errors import TrainingError


def test_moves_are_coded_and_back() -> None:
    for move in ("e2e4", "a7a8q", "h2h1n", "e1g1", "h8a1"):
        assert uci_move(move_code(move)) == move


def test_games_are_played_again_to_any_row() -> None:
    shard = labelled_shard(4, 30)
    rows = range(shard.positions + shard.branches)
    found = dict(games_at(shard, rows))
    assert found.keys() == set(rows)
    plies = shard.columns["plies"].astype(int)
    for row in range(shard.positions):
        game = np.searchsorted(np.cumsum(plies), row, side="right")
        assert len(found[row].moves()) == row - (np.cumsum(plies) - plies)[game]
    for number, at in enumerate(shard.columns["branch_at"]):
        moves = found[shard.positions + number].moves()
        assert moves[:-1] == found[int(at)].moves()
        assert moves[-1] == uci_move(int(shard.columns["branch_move"][number]))
    last = shard.positions - 1
    assert [row for row, _ in games_at(shard, {last})] == [last]


class Tables:
    """Says what it was told."""

    def __init__(self, value: int | None, distance: int | None) -> None:
        self.value, self.distance = value, distance

    def probe_wdl(self, game: Game) -> int | None:
        return self.value

    def probe_dtz(self, game: Game) -> int | None:
        return self.distance


@pytest.mark.parametrize(
    ("value", "distance", "clock", "result"),
    [
        (2, 20, 0, 1),
        (-2, -20, 0, -1),
        (2, 20, 80, 1),
        (2, 21, 80, 0),
        (-2, -21, 80, 0),
        (1, 120, 0, 0),
        (-1, -120, 0, 0),
        (0, 0, 50, 0),
        (None, None, 0, None),
        (2, None, 9, None),
    ],
)
def test_rule_50_takes_wins(value: int | None, distance: int | None, clock: int, result: int | None) -> None:
    game = Game(f"8/8/8/8/8/4k3/8/4K2R w - - {clock} 60")
    assert result_of(game, cast("Tablebases", Tables(value, distance))) == result


def endgame_shard() -> Shard:
    """Two games of one move with three men: a win, and a draw."""
    fens = ["8/8/8/8/8/4k3/8/R3K3 w - - 0 1", "8/8/8/8/8/4k3/8/4K2B w - - 0 1"]
    moves = [move_code("a1a8"), move_code("h1b7")]
    one = np.array(moves, np.uint16)
    columns: dict[str, Any] = {
        "fens": np.frombuffer("\n".join(fens).encode(), np.uint8),
        "plies": np.ones(2, np.uint16),
        "prefix": np.zeros(2, np.uint16),
        "results": np.full(2, 2, np.uint8),
        "chess960": np.zeros(2, np.uint8),
        "moves": one,
        "best": one,
        "best_cp": np.array([40, 40], np.int16),
        "lines": one[None],
        "lines_cp": np.full((1, 2), 40, np.int16),
        "branch_at": np.zeros(0, np.uint32),
        "branch_move": np.zeros(0, np.uint16),
        "branch_best": np.zeros(0, np.uint16),
        "branch_best_cp": np.zeros(0, np.int16),
        "branch_lines": np.zeros((1, 0), np.uint16),
        "branch_lines_cp": np.zeros((1, 0), np.int16),
    }
    return Shard("labels", columns)


def test_tables_have_the_last_word_on_w_d_l() -> None:
    tables = open_tablebases([str(TABLES)], lambda text: None)
    assert tables is not None
    table = table_of(endgame_shard(), DataSettings(), TargetSettings(), input_format=1, tables=tables)
    assert table.wdl.tolist() == [[1, 0, 0], [0, 1, 0]]
    without = table_of(endgame_shard(), DataSettings(), TargetSettings(), input_format=1)
    assert 0 < without.wdl[0, 0] < 1
    middle_game = labelled_shard(2, 20)
    one, other = (
        table_of(middle_game, DataSettings(), TargetSettings(), input_format=1, tables=each)
        for each in (tables, None)
    )
    assert np.array_equal(one.wdl, other.wdl)


def test_folders_without_tables_are_named(tmp_path: Path) -> None:
    assert open_tablebases([], lambda text: None) is None
    with pytest.raises(TrainingError, match=r"\.rtbw"):
        open_tablebases([str(tmp_path)], lambda text: None)
    with pytest.raises(TrainingError, match="cannot read the folder"):
        open_tablebases([str(tmp_path / "none")], lambda text: None)

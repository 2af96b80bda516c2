# SPDX-License-Identifier: GPL-3.0-or-later
"""Shards become tables: held-out games apart, damaged shards left out."""

from pathlib import Path

import numpy as np
import pytest

from engine._core import Game, encode
from engine.apps.shards.shard import ShardError, write_shard
from tests.training.labels import labelled_shard
from training.config import DataSettings, TargetSettings
from training.data.packed import unpack_positions
from training.data.reading import ShardReader, shard_files, table_of
from training.data.table import NO_PLACE, PositionTable
from training.errors import TrainingError

TARGETS = TargetSettings()


def read(data: DataSettings, notes: list[str] | None = None) -> PositionTable:
    reader = ShardReader(data, TARGETS, input_format=1, seed=1)
    shards = reader.read_all(shard_files(data), 2, (notes if notes is not None else []).append)
    return PositionTable.concatenate(shard.table for shard in shards)


def test_rows_are_the_positions_of_the_games_then_the_branches() -> None:
    shard = labelled_shard(3, 30)
    table = table_of(shard, DataSettings(), TARGETS, input_format=1)
    assert len(table) == shard.positions + shard.branches
    assert table.branch.sum() == shard.branches
    first = encode([Game()], 1, "fen_only")[0].view(np.uint64)[0, :112]
    positions = unpack_positions(table.packed)
    assert np.array_equal(positions["planes"][0], first)
    assert table.keys[0] == Game().key
    listed = table.listed[:, :4]
    counts = np.diff(table.move_start)
    assert ((listed < counts[:, None]) | (listed == NO_PLACE)).all()
    assert np.array_equal(table.best, listed[:, 0])
    assert np.isnan(table.plies_left[table.branch]).all()
    assert table.plies_left[0] == shard.columns["plies"][0]


def test_a_share_of_the_positions_can_be_taken(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.shard", labelled_shard(20, 40))
    whole = read(DataSettings(main=(str(tmp_path),), holdout=0.0))
    part = read(DataSettings(main=(str(tmp_path),), holdout=0.0, sampling=0.25))
    assert 0.2 < len(part) / len(whole) < 0.3
    assert set(part.keys) <= set(whole.keys)
    counts = np.diff(part.move_start)
    row = int(np.flatnonzero(whole.keys == part.keys[5])[0])
    assert counts[5] == np.diff(whole.move_start)[row]


def test_damaged_shards_are_named_and_omitted(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.shard", labelled_shard(2, 20))
    (tmp_path / "b.shard").write_bytes((tmp_path / "a.shard").read_bytes()[:-9])
    notes: list[str] = []
    assert len(read(DataSettings(main=(str(tmp_path),)), notes))
    assert [str(tmp_path / "b.shard") in note for note in notes] == [True]
    (tmp_path / "a.shard").unlink()
    with pytest.raises(TrainingError, match="no positions"):
        read(DataSettings(main=(str(tmp_path),)))


def test_a_label_that_is_no_legal_move_is_named_with_its_game() -> None:
    shard = labelled_shard(3, 10)
    best = shard.columns["best"].copy()
    best[12] = 1 | 2 << 6
    wrong = type(shard)("labels", dict(shard.columns) | {"best": best})
    with pytest.raises(ShardError, match=r"1:.*2:.*b1c1"):
        table_of(wrong, DataSettings(), TARGETS, input_format=1)

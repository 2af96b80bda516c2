# SPDX-License-Identifier: GPL-3.0-or-later
"""Games of self-play come into shards once each, and take few bytes there."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from engine.apps.games.journal import JournalError
from engine.apps.selfplay.archive import Folder
from engine.apps.selfplay.campaign import SelfPlayCampaign
from engine.apps.selfplay.config import SELFPLAY_OPTIONS, SelfPlayConfig
from engine.apps.selfplay.packing import Packer
from engine.apps.shards.shard import read_shard, write_shard
from engine.apps.shards.shard_games import shard_of
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.selfplay.games import played_game
from training.data.chunks import games_of
from training.data.records import parse_records


def write_games(folder: Folder, *numbers: int) -> None:
    folder.training.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        records = played_game(seed=number + 1, input_format=1)
        (columns,) = games_of(parse_records(records.tobytes()))
        columns = {**columns, "number": np.array([number], np.uint32)}
        write_shard(folder.chunk(number), shard_of([columns], "a game"))


def numbers_in(folder: Folder) -> list[list[int]]:
    shards = sorted(folder.training.glob("*.shard"))
    return [read_shard(path).columns["number"].tolist() for path in shards]


def test_games_are_packed_once_when_a_crash_kept_their_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "shards")
    write_games(folder, 0, 1, 2, 5)
    Packer(folder, [0, 1, 2]).close()
    assert numbers_in(folder) == [[0, 1, 2]]
    assert folder.chunk(5).exists()  # The journal does not have it, so it is played again.
    write_games(folder, 1, 3)
    Packer(folder, [0, 1, 2, 3]).close()
    assert numbers_in(folder) == [[0, 1, 2], [3]]
    assert not folder.chunk(1).exists()


def test_a_damaged_shard_is_named_when_games_are_left(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "shards")
    write_games(folder, 0)
    (folder.training / "games_000001.shard").write_bytes(b"WFSHARD1")
    with pytest.raises(JournalError, match=r"games_000001\.shard"):
        Packer(folder, [0])
    assert folder.chunk(0).exists()


@pytest.mark.integration
def test_positions_of_self_play_take_at_most_24_bytes(tmp_path: Path) -> None:
    options = SELFPLAY_OPTIONS.changed(backend="random", hash=1, tree_memory=16)
    config = SelfPlayConfig(
        options=options, games=8, nodes=100, seed=1, workers=1, format="shards", output=str(tmp_path)
    )
    assert asyncio.run(SelfPlayCampaign(config).run(Recorder())) == "finished"
    (path,) = (tmp_path / "training").iterdir()
    shard = read_shard(path)
    assert sorted(shard.columns["number"].tolist()) == list(range(8))
    assert path.stat().st_size <= 24 * shard.positions

"""lc0's chunks come through an import as they were: planes, policy, values, results."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.selfplay.chunk import write_chunk
from engine.selfplay.training_record import RECORD_DTYPE, Records, reverse_ranks
from tests.engine.selfplay.games import played_game
from training.config import DataSettings, TargetSettings
from training.data.chunks import games_of
from training.data.importing import import_sources
from training.data.packed import unpack_positions
from training.data.reading import shards_of, table_of
from training.data.records import RECORDS, parse_records
from training.data.shard import read_shard
from training.data.table import PositionTable
from training.errors import TrainingError

SEARCH_ONLY = TargetSettings(q_ratio=1.0)


def tables_of(folder: Path, input_format: int, target: TargetSettings = SEARCH_ONLY) -> PositionTable:
    shards = [read_shard(path) for path in shards_of([folder])]
    return PositionTable.concatenate(
        table_of(shard, DataSettings(), target, input_format=input_format) for shard in shards
    )


def as_version(records: Records, version: int) -> bytes:
    """The records as an older or newer program would have written them."""
    layout = RECORDS[version]
    written = np.zeros(len(records), layout)
    for name in layout.names or ():
        if name in (RECORD_DTYPE.names or ()):
            written[name] = records[name]
    written["version"] = version
    if version < 6:
        written["result"] = records["result_q"]
    return written.tobytes()


@pytest.mark.parametrize("input_format", [1, 2, 3, 4, 132])
@pytest.mark.parametrize("opening", [0, 3, 9])
def test_a_game_of_self_play_comes_back(tmp_path: Path, input_format: int, opening: int) -> None:
    records = played_game(seed=opening + 1, input_format=input_format)[opening:]
    write_chunk(tmp_path / "game_000000.gz", records)
    imported = import_sources([str(tmp_path)], str(tmp_path / "out"))
    assert (imported.games, imported.positions, imported.broken) == (1, len(records), {})
    table = tables_of(tmp_path / "out", input_format)
    positions = unpack_positions(table.packed)
    planes = np.stack([reverse_ranks(np.asarray(record["planes"])) for record in records])
    # What repeated before the first record is not known any more.
    known = [plane for plane in range(104) if plane % 13 != 12 or not opening]
    # Of positions with other castling rights before the first record, other formats tell nothing.
    first = 7 if opening and input_format > 2 else 0
    assert np.array_equal(positions["planes"][first:, :104][:, known], planes[first:, known])
    for i, record in enumerate(records):
        here = slice(table.move_start[i], table.move_start[i + 1])
        assert np.abs(table.shares[here] - record["probabilities"][table.moves[here]]).max() < 5e-4
        assert table.moves[here][table.best[i]] == record["best_idx"]
    q = table.wdl[:, 0] - table.wdl[:, 2]
    assert np.abs(q - records["root_q"]).max() < 1e-5
    assert np.array_equal(table.plies_left, records["plies_left"])
    assert table.searched.all()


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
def test_every_version_of_the_record_is_read(tmp_path: Path, version: int) -> None:
    records = played_game(seed=4, input_format=1)
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(as_version(records, version))
    imported = import_sources([str(tmp_path / "a.gz")], str(tmp_path / "out"))
    assert (imported.games, imported.positions, imported.broken) == (1, len(records), {})
    table = tables_of(tmp_path / "out", 1, TargetSettings(q_ratio=0.0))
    planes = np.stack([reverse_ranks(np.asarray(record["planes"])) for record in records])
    assert np.array_equal(unpack_positions(table.packed)["planes"][:, :104], planes)
    assert np.array_equal(table.wdl[:, 0] - table.wdl[:, 2], records["result_q"])
    assert np.isfinite(table.next_wdl).all()


def test_positions_that_a_rescorer_took_out_begin_another_game() -> None:
    records = played_game(seed=2, input_format=1)
    kept = np.delete(records, [10, 11, 20])
    games = games_of(parse_records(kept.tobytes()))
    assert [game["count"] for game in games] == [10, 8, len(records) - 21]
    assert all(game["prefix"] for game in games[1:])


def test_archives_are_read_and_what_is_damaged_in_them_is_named(tmp_path: Path) -> None:
    games = [played_game(seed=seed, input_format=1) for seed in (1, 2)]
    chunks = [gzip.compress(game.tobytes()) for game in games]
    wrong = {
        "cut.gz": chunks[0][:-20],
        "text.gz": b"no gzip",
        "odd.gz": gzip.compress(games[0].tobytes()[:-1]),
        "future.gz": gzip.compress(b"\x09\0\0\0" + bytes(100)),
        "policy.gz": gzip.compress(_with(games[0], 3, probabilities=0.1)),
        "empty.gz": gzip.compress(b""),
    }
    path = tmp_path / "games.tar"
    with tarfile.open(path, "w") as archive:
        for name, data in {"one.gz": chunks[0], **wrong, "two.gz": chunks[1]}.items():
            entry = tarfile.TarInfo(f"training/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    imported = import_sources([str(path)], str(tmp_path / "out"))
    assert imported.games == 2
    assert set(imported.broken) == {f"{path}:training/{name}" for name in wrong}


def test_an_import_is_gone_on_with_and_takes_nothing_twice(tmp_path: Path) -> None:
    write_chunk(tmp_path / "in" / "a.gz", played_game(seed=1, input_format=1))
    first = import_sources([str(tmp_path / "in")], str(tmp_path / "out"))
    write_chunk(tmp_path / "in" / "b.gz", played_game(seed=2, input_format=1))
    second = import_sources([str(tmp_path / "in")], str(tmp_path / "out"))
    third = import_sources([str(tmp_path / "in")], str(tmp_path / "out"))
    assert [done.games for done in (first, second, third)] == [1, 1, 0]
    assert [done.passed_over for done in (first, second, third)] == [0, 1, 2]
    assert len(shards_of([tmp_path / "out"])) == 2


@pytest.mark.parametrize("name", ["games.tar", "games.tar.gz"])
def test_an_archive_that_is_not_all_there_is_taken_when_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as archive:
        for seed in (1, 2, 3):
            write_chunk(tmp_path / f"{seed}.gz", played_game(seed=seed, input_format=1))
            archive.add(tmp_path / f"{seed}.gz", f"{seed}.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    first = import_sources([str(path)], str(tmp_path / "out"))
    assert (first.games, list(first.broken)) == (0, [str(path)])
    path.write_bytes(whole)
    second = import_sources([str(path)], str(tmp_path / "out"))
    assert (second.games, second.broken, second.passed_over) == (3, {}, 0)


def test_a_window_takes_the_newest_shards(tmp_path: Path) -> None:
    for number in range(3):
        write_chunk(tmp_path / "in" / f"{number}.gz", played_game(seed=number + 1, input_format=1))
        import_sources([str(tmp_path / "in")], str(tmp_path / "out"))
    shards = shards_of([tmp_path / "out"])
    assert shards_of([tmp_path / "out"], window=1) == shards[-1:]
    last = read_shard(shards[-1]).positions
    assert shards_of([tmp_path / "out"], window=last + 1) == shards[-2:]


def test_a_source_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="there is nothing"):
        import_sources([str(tmp_path / "nowhere")], str(tmp_path / "out"))


def _with(records: Records, row: int, **values: Any) -> bytes:
    changed = records.copy()
    for name, value in values.items():
        changed[name][row] = value
    return changed.tobytes()

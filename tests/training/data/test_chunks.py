# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's chunks come through an import as they were: planes, policy, values, results."""

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.apps.shards.chunk import TrainingDataError, chunk_bytes
from engine.apps.shards.shard import read_shard
from engine.apps.shards.training_record import RECORD_DTYPE, Records, reverse_ranks
from tests.engine.apps.selfplay.games import played_game
from training.config import DataSettings, TargetSettings
from training.data.chunks import games_of
from training.data.importing import import_sources
from training.data.packed import unpack_positions
from training.data.reading import shards_of, table_of
from training.data.records import RECORDS, parse_records
from training.data.sources import KnownSources
from training.data.table import PositionTable
from training.errors import TrainingError

pytestmark = pytest.mark.integration

SEARCH_ONLY = TargetSettings(result_share=0.0)


def write_game(path: Path, records: Records) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(chunk_bytes(records))


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
    write_game(tmp_path / "game_000000.gz", records)
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
        shares = record["probabilities"][table.moves[here]]
        assert np.abs(table.shares[here] / np.maximum(shares, 1e-9) - 1)[shares > 0].max() < 0.07
        assert not table.shares[here][shares == 0].any()
        assert table.moves[here][table.best[i]] == record["best_idx"]
    q = table.wdl[:, 0] - table.wdl[:, 2]
    assert np.abs(q - records["root_q"]).max() < 2 / 255
    assert np.abs(table.wdl[:, 1] - records["root_d"]).max() < 2 / 255
    assert np.abs(table.plies_left - records["plies_left"]).max() <= 0.5
    assert table.searched.all()


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
def test_every_version_of_the_record_is_read(tmp_path: Path, version: int) -> None:
    records = played_game(seed=4, input_format=1)
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(as_version(records, version))
    imported = import_sources([str(tmp_path / "a.gz")], str(tmp_path / "out"))
    assert (imported.games, imported.positions, imported.broken) == (1, len(records), {})
    table = tables_of(tmp_path / "out", 1, TargetSettings(result_share=1.0))
    planes = np.stack([reverse_ranks(np.asarray(record["planes"])) for record in records])
    assert np.array_equal(unpack_positions(table.packed)["planes"][:, :104], planes)
    assert np.array_equal(table.wdl[:, 0] - table.wdl[:, 2], records["result_q"])
    assert np.isfinite(table.next_wdl).all()


def test_positions_that_a_rescorer_took_out_begin_another_game() -> None:
    records = played_game(seed=2, input_format=1)
    kept = np.delete(records, [10, 11, 20])
    games = games_of(parse_records(kept.tobytes()))
    assert [len(game["best"]) for game in games] == [10, 8, len(records) - 21]
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


@pytest.mark.parametrize("name", ["games.tar", "games.tar.gz"])
def test_an_archive_that_is_not_all_there_is_taken_when_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as archive:
        for seed in (1, 2, 3):
            write_game(tmp_path / f"{seed}.gz", played_game(seed=seed, input_format=1))
            archive.add(tmp_path / f"{seed}.gz", f"{seed}.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    first = import_sources([str(path)], str(tmp_path / "out"))
    assert (first.games, list(first.broken)) == (0, [str(path)])
    path.write_bytes(whole)
    second = import_sources([str(path)], str(tmp_path / "out"))
    assert (second.games, second.broken, second.passed_over) == (3, {}, 0)


FLOATS = [
    (version, name)
    for version, layout in RECORDS.items()
    for name in layout.names or ()
    if layout[name].base.kind == "f"
]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e7])
def test_number_is_refused_in_every_field_when_out_of_range(value: float) -> None:
    whole = {version: as_version(played_game(seed=4, input_format=1), version) for version in RECORDS}
    for version, name in FLOATS:
        records = np.frombuffer(whole[version], RECORDS[version]).copy()
        records[name].reshape(len(records), -1)[1, -1] = value
        allowed = (np.isnan(value) and name.startswith("orig_")) or (
            value == 1e7 and name in ("policy_kld", "q_st", "d_st", "reserved")
        )
        if allowed:
            parse_records(records.tobytes())
            continue
        with pytest.raises(TrainingDataError, match=f"record 2: {name} is"):
            parse_records(records.tobytes())


def test_an_unknown_input_format_is_named() -> None:
    data = _with(played_game(seed=1, input_format=1), 0, input_format=77)
    with pytest.raises(TrainingDataError, match="77"):
        parse_records(data)


def test_a_broken_source_is_reported_until_it_is_whole(tmp_path: Path) -> None:
    whole = gzip.compress(played_game(seed=1, input_format=1).tobytes())
    source, out = tmp_path / "in" / "a.gz", str(tmp_path / "out")
    write_game(tmp_path / "in" / "b.gz", played_game(seed=2, input_format=1))
    source.write_bytes(whole[: len(whole) // 2])
    first, second = (import_sources([str(tmp_path / "in")], out) for _ in range(2))
    assert (first.games, second.games) == (1, 0)
    assert list(first.broken) == list(second.broken) == [str(source)]
    source.write_bytes(whole)
    third, fourth = (import_sources([str(tmp_path / "in")], out) for _ in range(2))
    assert (third.games, third.passed_over, third.broken) == (1, 1, {})
    assert (fourth.games, fourth.passed_over, fourth.broken) == (0, 2, {})
    assert len(shards_of([Path(out)])) == 2


def test_a_source_is_read_again_only_when_its_content_changes(tmp_path: Path) -> None:
    source, out = tmp_path / "a.gz", str(tmp_path / "out")
    write_game(source, played_game(seed=1, input_format=1))
    assert import_sources([str(source)], out).games == 1
    os.utime(source, ns=(1, 1))
    assert import_sources([str(source)], out).passed_over == 1
    write_game(source, played_game(seed=2, input_format=1))
    assert import_sources([str(source)], out).games == 1


def test_an_archive_that_grows_or_is_repaired_gives_what_is_new(tmp_path: Path) -> None:
    path, out = tmp_path / "games.tar", str(tmp_path / "out")
    chunks = [gzip.compress(played_game(seed=seed, input_format=1).tobytes()) for seed in (1, 2, 3)]

    def imported(*members: bytes) -> tuple[int, int, int]:
        with tarfile.open(path, "w") as archive:
            for number, data in enumerate(members):
                entry = tarfile.TarInfo(f"{number}.gz")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        done = import_sources([str(path)], out)
        return done.games, len(done.broken), done.passed_over

    assert imported(chunks[0], chunks[1][:-20]) == (1, 1, 0)
    assert imported(chunks[0], chunks[1][:-20]) == (0, 1, 0)
    assert imported(*chunks[:2]) == (1, 0, 0)
    assert imported(*chunks) == (1, 0, 0)
    done = import_sources([str(path)], out)
    assert (done.games, done.passed_over) == (0, 1)


def test_a_journal_of_names_is_read(tmp_path: Path) -> None:
    write_game(tmp_path / "a.gz", played_game(seed=1, input_format=1))
    known = KnownSources([{"shard": "x", "sources": [str((tmp_path / "a.gz").resolve())]}])
    assert known.has_file(tmp_path / "a.gz") and not known.has_file(tmp_path / "b.gz")


def test_a_folder_without_games_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(TrainingError, match="ends with"):
        import_sources([str(tmp_path)], str(tmp_path / "out"))


def test_a_window_takes_the_newest_shards(tmp_path: Path) -> None:
    for number in range(3):
        write_game(tmp_path / "in" / f"{number}.gz", played_game(seed=number + 1, input_format=1))
        import_sources([str(tmp_path / "in")], str(tmp_path / "out"))
    shards = shards_of([tmp_path / "out"])
    assert shards_of([tmp_path / "out"], window=1) == shards[-1:]
    last = read_shard(shards[-1]).positions
    assert shards_of([tmp_path / "out"], window=last + 1) == shards[-2:]


def test_a_source_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no such file"):
        import_sources([str(tmp_path / "nowhere")], str(tmp_path / "out"))


def _with(records: Records, row: int, **values: Any) -> bytes:
    changed = records.copy()
    for name, value in values.items():
        changed[name][row] = value
    return changed.tobytes()

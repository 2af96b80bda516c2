# SPDX-License-Identifier: GPL-3.0-or-later
"""Shards keep what they are given, and whatever is wrong with a file is said."""

import gzip
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.apps.shards.shard import (
    MAGIC,
    SEARCH_COLUMNS,
    Shard,
    ShardError,
    read_header,
    read_shard,
    write_shard,
)
from engine.apps.shards.shard_coding import Columns, moves_of_samples
from engine.apps.shards.shard_games import shard_of
from engine.cli import main
from tests.training.labels import labelled_shard
from training.data.chunks import games_of
from training.data.records import parse_records


@pytest.fixture(scope="module")
def shard() -> Shard:
    return labelled_shard(6, 40)


def test_a_shard_comes_back_as_it_was(shard: Shard, tmp_path: Path) -> None:
    path = tmp_path / "a.shard"
    write_shard(path, shard)
    read = read_shard(path)
    assert read.kind == "labels"
    assert read.source == shard.source
    assert read.columns.keys() == shard.columns.keys()
    for name, column in shard.columns.items():
        assert read.columns[name].dtype == column.dtype
        assert np.array_equal(read.columns[name], column), name
    header = read_header(path)
    assert (header["games"], header["positions"], header["branches"]) == (6, shard.positions, shard.branches)


def test_a_shard_of_one_line_a_position_comes_back(shard: Shard, tmp_path: Path) -> None:
    first = {name: column[:1] for name, column in shard.columns.items() if "lines" in name}
    write_shard(tmp_path / "a.shard", replace(shard, columns={**shard.columns, **first}))
    read = read_shard(tmp_path / "a.shard")
    for name, column in first.items():
        assert np.array_equal(read.columns[name], column), name


def test_prefixes_are_no_samples(shard: Shard, tmp_path: Path) -> None:
    cut = dict(shard.columns)
    cut["prefix"] = np.full(shard.games, 3, np.uint16)
    keep = np.concatenate([np.arange(n) >= 3 for n in shard.columns["plies"]])
    for name in ("best", "best_cp", "lines", "lines_cp"):
        cut[name] = np.ascontiguousarray(shard.columns[name][..., keep])
    for name in cut:
        if name.startswith("branch_"):
            cut[name] = cut[name][..., :0].copy()
    path = tmp_path / "a.shard"
    write_shard(path, replace(shard, columns=cut))
    read = read_shard(path)
    assert read.positions == shard.positions - 3 * shard.games
    assert all(np.array_equal(read.columns[name], column) for name, column in cut.items())


def test_a_shard_counts_as_not_annotated_when_its_values_are_floats(
    shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = shard.positions + shard.branches
    columns: Columns = {"prior": np.zeros(9, np.uint8), "prior_wdl": np.zeros((3, rows), np.float16)}
    path = tmp_path / "a.shard"
    with monkeypatch.context() as patches:
        patches.setattr(Shard, "check", lambda shard: None)
        write_shard(path, replace(shard, columns={**shard.columns, **columns}, annotated_by="a network"))
    assert read_header(path)["annotated_by"] == ""
    read = read_shard(path)
    assert read.annotated_by == "" and read.columns.keys() == shard.columns.keys()


def test_an_empty_shard_is_one(tmp_path: Path) -> None:
    empty = labelled_shard(0, 0)
    write_shard(tmp_path / "a.shard", empty)
    assert read_shard(tmp_path / "a.shard").games == 0


@pytest.mark.parametrize("place", [0.3, 0.6, 0.99])
def test_a_changed_byte_is_found(shard: Shard, tmp_path: Path, place: float) -> None:
    path = tmp_path / "a.shard"
    write_shard(path, shard)
    data = bytearray(path.read_bytes())
    header = len(MAGIC) + 4 + struct.unpack_from("<I", data, len(MAGIC))[0]
    data[header + int(place * (len(data) - header))] ^= 4
    path.write_bytes(data)
    with pytest.raises(ShardError, match=r"column .* damaged"):
        read_shard(path)


@pytest.mark.parametrize("length", [0, 5, 11, 100, -1])
def test_a_file_that_is_disconnected_is_refused(shard: Shard, tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.shard"
    write_shard(path, shard)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ShardError, match=r"truncated|no shard|damaged|header lists"):
        read_shard(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema", 2, "another version"),
        ("kind", "planes", "unknown kind"),
        ("columns", [], "column .* is missing"),
        ("columns", 3, "damaged header"),
        ("columns", [{"name": "plies"}], "damaged header"),
    ],
)
def test_wild_header_is_refused(shard: Shard, tmp_path: Path, key: str, value: object, message: str) -> None:
    path = tmp_path / "a.shard"
    write_shard(path, shard)
    data = path.read_bytes()
    start = len(MAGIC) + 4
    header = json.loads(data[start : start + struct.unpack_from("<I", data, len(MAGIC))[0]]) | {key: value}
    text = json.dumps(header).encode()
    path.write_bytes(MAGIC + struct.pack("<I", len(text)) + text)
    with pytest.raises(ShardError, match=message):
        read_shard(path)


@pytest.mark.parametrize(
    ("column", "message"),
    [("best", "best has"), ("results", "results has"), ("moves", "moves has"), ("lines", "lines has")],
)
def test_unfit_columns_are_not_written(shard: Shard, tmp_path: Path, column: str, message: str) -> None:
    shorter = dict(shard.columns) | {column: shard.columns[column][..., :-1]}
    with pytest.raises(ShardError, match=message):
        write_shard(tmp_path / "a.shard", replace(shard, columns=shorter))


@pytest.mark.integration
@pytest.mark.parametrize("variant", [(), ("--chess960",)])
def test_selfplay_shards_equal_the_import_of_its_chunks(variant: tuple[str, ...], tmp_path: Path) -> None:
    flags = ("selfplay", "--backend=random", "--games=3", "--nodes=8", "--concurrency=1", *variant)
    for kind in ("lc0", "shards"):
        assert main([*flags, "--format", kind, "--output", str(tmp_path / kind)]) == 0
    (path,) = (tmp_path / "shards" / "training").iterdir()
    written = read_shard(path)
    assert written.columns["number"].tolist() == [0, 1, 2]
    chunks = sorted((tmp_path / "lc0" / "training").iterdir())
    games = [games_of(parse_records(gzip.decompress(chunk.read_bytes())))[0] for chunk in chunks]
    imported = shard_of(games, "a test")
    assert written.positions == imported.positions > 0
    for name in {*SEARCH_COLUMNS, "results"} - {"number"}:
        assert np.array_equal(written.columns[name], imported.columns[name]), name
    # A chunk shows some of the moves before its first record, a shard has them all.
    assert np.array_equal(moves_of_samples(written.columns), moves_of_samples(imported.columns))

# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of unknown origin: each bad one is named and skipped, and the next ones are read."""

import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from engine.apps.shards.shard import MAGIC, ShardError, read_header, read_shard
from training.data import chunks, labelled_games
from training.data.chunks import ChunkGames
from training.data.sources import KnownSources


def npz(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def column(shape: str, data: bytes = b"", descr: str = "<u2") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


WHOLE = npz(lens=column("(1000,)", bytes(range(250)) * 8))


@pytest.mark.parametrize(
    "data",
    [
        bytes(labelled_games.MAX_BYTES + 1),
        npz(lens=column("(1099511627776,)")),
        npz(lens=column("(4294967296, 4294967297)")),
        npz(lens=column("(2,)", bytes(8), "|O")),
        npz(lens=b"no array"),
        npz(lens=bytes(labelled_games.MAX_BYTES + 1)),
        WHOLE[:60] + bytes(range(60)) + WHOLE[120:],
        WHOLE,
        b"",
    ],
    ids=["zeros", "shape", "overflow", "objects", "text", "member", "deflate", "columns", "empty"],
)
def test_damaged_archive_of_labelled_games_is_an_error_with_a_reason(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "games.npz.xz"
    path.write_bytes(lzma.compress(data, preset=0))
    with pytest.raises(ShardError):
        labelled_games.read_labelled_games(path)


def archive_of(kind: bytes, announced: int, content: bytes = b"") -> bytes:
    header = tarfile.TarInfo("a.gz")
    header.type, header.size = kind, announced
    padding = bytes(-len(content) % 512)
    return gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + content + padding + bytes(1024), 1)


@pytest.mark.parametrize(
    "data",
    [
        archive_of(tarfile.XHDTYPE, 1 << 31),
        archive_of(tarfile.XGLTYPE, 1 << 31),
        archive_of(tarfile.GNUTYPE_LONGNAME, chunks.MAX_PROPERTIES + 1, bytes(chunks.MAX_PROPERTIES + 1)),
        archive_of(tarfile.REGTYPE, 1 << 31),
        archive_of(tarfile.REGTYPE, 1000, bytes(1000)),
        b"\x1f\x8b" + bytes(range(200)),
    ],
    ids=["properties", "global properties", "name", "truncated member", "no chunk", "no archive"],
)
def test_damaged_archive_of_chunks_is_named_and_skipped(tmp_path: Path, data: bytes) -> None:
    broken: list[str] = []
    path = tmp_path / "chunks.tar.gz"
    path.write_bytes(data)
    games = ChunkGames(KnownSources([]), lambda name, error: broken.append(str(name)))
    games.add(path)
    assert len(broken) == 1 and broken[0].startswith(str(path))
    assert not games.games


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 50_000, b"\xff" * 100, b"1e999"])
def test_shard_is_refused_when_its_header_is_no_header(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "deep.shard"
    path.write_bytes(MAGIC + len(header).to_bytes(4, "little") + header)
    for read in (read_header, read_shard):
        with pytest.raises(ShardError):
            read(path)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpacking on all cores: the same contents, limits and messages as zlib's, whatever the file."""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluator.network import NetworkError, unpack

LIMIT = 64 << 20
CONTENTS = np.random.default_rng(5).integers(0, 200, 9 << 20, np.uint8).tobytes()
"""Of several pieces that are unpacked side by side, and compressible as weights are."""

WHOLE = gzip.compress(CONTENTS, 1)


def flipped(at: int) -> bytes:
    changed = bytearray(WHOLE)
    changed[at] ^= 0x10
    return bytes(changed)


def unpacked(content: bytes, path: Path) -> bytes:
    path.write_bytes(content)
    with path.open("rb") as file:
        return bytes(unpack.unpack(file, LIMIT))


def on_all_cores(content: bytes, path: Path) -> bytes | None:
    path.write_bytes(content)
    with path.open("rb") as file:
        raw = unpack.unpack_on_all_cores(file, len(content), LIMIT)
    return None if raw is None else bytes(raw)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pytest.importorskip("rapidgzip")
    return tmp_path / "network.pb.gz"


def test_a_whole_file(path: Path) -> None:
    assert on_all_cores(WHOLE, path) == CONTENTS
    assert unpacked(WHOLE, path) == CONTENTS


@pytest.mark.parametrize(
    "content",
    [gzip.compress(CONTENTS[: 1 << 20]) + gzip.compress(CONTENTS[1 << 20 :], 1), WHOLE + bytes(1000)],
    ids=["two members", "padded with zeros"],
)
def test_unpack_uses_zlib_for_other_streams(content: bytes, path: Path) -> None:
    assert on_all_cores(content, path) is None
    assert unpacked(content, path) == CONTENTS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[:-4], "truncated"),
        (WHOLE[: len(WHOLE) // 2] + struct.pack("<I", len(CONTENTS)), "truncated|damaged"),
        (flipped(len(WHOLE) // 2), "damaged"),
        (flipped(-6), "damaged"),
        (flipped(-3), "damaged"),
        (WHOLE + b"something else", "damaged"),
    ],
    ids=["without its end", "half", "a bit of the data", "of the CRC", "of the length", "more behind it"],
)
def test_damage_is_named_as_zlib_names_it(
    content: bytes, message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_all_cores(content, path) is None
    with pytest.raises(NetworkError, match=message) as caught:
        unpacked(content, path)
    monkeypatch.setattr(unpack, "PARALLEL_BYTES", len(content) + 1)
    with pytest.raises(NetworkError) as of_zlib:
        unpacked(content, path)
    assert str(caught.value) == str(of_zlib.value)


@pytest.mark.integration
def test_a_file_that_unpacks_to_more_than_it_says(path: Path) -> None:
    content = gzip.compress(CONTENTS + CONTENTS, 1)[:-4] + struct.pack("<I", len(WHOLE))
    assert on_all_cores(content, path) is None
    with pytest.raises(NetworkError, match="damaged"):
        unpacked(content, path)


def test_without_the_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidgzip", None)
    assert on_all_cores(WHOLE, path) is None
    assert unpacked(WHOLE, path) == CONTENTS

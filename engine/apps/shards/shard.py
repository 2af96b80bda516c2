# SPDX-License-Identifier: GPL-3.0-or-later
"""Shards: files of training positions, stored as games instead of planes: 8 to 30 bytes per position.

A shard holds whole games as columns of numbers. Moves are codes from | to << 6 | promotion << 12 (none,
knight, bishop, rook, queen), castling as the king's two-square move (king takes rook in Chess960). Scores are
centipawns for the side to move; mate in k is 32000 - k, being mated in k is -(32000 - k).

    magic "WFSHARD1" | uint32 length of the header | header, JSON | columns, each compressed by xz

The header has kind, source and the columns (name, dtype, shape, bytes and the SHA-256 of the uncompressed
data). `coding` transforms columns before the compression.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.apps.shards import shard_coding as coding
from engine.apps.shards.shard_coding import Columns
from protocol.common.files import write_atomically

MAGIC = b"WFSHARD1"
SUFFIX = ".shard"
SIX_DIGITS = "[0-9]" * 6
"""Pattern of the numbers that name shards of labels and imports."""
MAX_HEADER = 1 << 20
MAX_COLUMN = 1 << 31

Kind = Literal["labels", "search"]
"""labels: an engine's best move, score and best lines for each position. search: visits of a tree search."""

GAME_COLUMNS = {
    "fens": "u1",  # the games' start FENs, joined by newlines
    "plies": "<u2",  # [G] moves of each game
    "prefix": "<u2",  # [G] leading moves that are only history: their positions are not samples
    "results": "u1",  # [G] 1 White won, 0 Black won, 2 draw, 3 undecided
    "chess960": "u1",  # [G] 1 for Chess960's rules
    "moves": "<u2",  # [sum of plies]
}
LABEL_COLUMNS = {
    "best": "<u2",  # [N] best move
    "best_cp": "<i2",  # [N]
    "lines": "<u2",  # [L, N] first moves of the best lines, 0 for none
    "lines_cp": "<i2",  # [L, N]
    "branch_at": "<u4",  # [B] ascending: the sample (0 to N - 1) where a branch starts
    "branch_move": "<u2",  # [B] its move; the following columns describe the position after it
    "branch_best": "<u2",
    "branch_best_cp": "<i2",
    "branch_lines": "<u2",  # [L, B]
    "branch_lines_cp": "<i2",
}
SEARCH_COLUMNS = {
    "number": "<u4",  # [G] of the game in its self-play
    "best": "<u2",  # [N]
    "policy": "u1",  # [sum of legal moves] shares of the visits, see `share_bytes`
    "wdl": "u1",  # [2, N] of the search, see `wdl_bytes`; for the side to move
    "result": "u1",  # [2, N] of the game's result in the source, for White
    "plies_left": "<u2",  # [N] UNKNOWN_PLIES where unknown
}
ANNOTATION_COLUMNS = {
    # A network's output for each row: samples along the games first, then branches.
    "prior": "u1",  # [sum of legal moves] its policy, see `share_bytes`
    "prior_wdl": "u1",  # [2, rows] see `wdl_bytes`
}
UNKNOWN_PLIES = 0xFFFF

KINDS: dict[Kind, dict[str, str]] = {
    "labels": GAME_COLUMNS | LABEL_COLUMNS,
    "search": GAME_COLUMNS | SEARCH_COLUMNS,
}


class ShardError(ValueError):
    """A shard is unusable. The message gives the reason, but not the file."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The games of a file. positions: samples along the games. branches: samples next to them.

    source: a text about the origin of the positions. annotated_by: SHA-256 of the network whose policy and
    W D L are in the annotation columns; empty without them.
    """

    kind: Kind
    columns: Columns
    source: str = ""
    annotated_by: str = ""

    @property
    def games(self) -> int:
        return len(self.columns["plies"])

    @property
    def positions(self) -> int:
        return int(self.columns["plies"].sum(dtype=np.int64) - self.columns["prefix"].sum(dtype=np.int64))

    @property
    def branches(self) -> int:
        return len(self.columns["branch_at"]) if self.kind == "labels" else 0

    def fens(self) -> list[str]:
        """Return the games' start positions."""
        return bytes(self.columns["fens"]).decode("ascii").split("\n") if self.games else []

    def check(self) -> None:
        """Raise ShardError unless columns and sizes are consistent and numbers are in range. Moves are
        checked when they are played."""
        wanted = KINDS[self.kind]
        for name, dtype in wanted.items():
            if name not in self.columns:
                raise ShardError(f"the column {name} is missing")
            if self.columns[name].dtype != np.dtype(dtype):
                raise ShardError(f"the column {name} is {self.columns[name].dtype}, not {np.dtype(dtype)}")
        self._check_games()
        count = self.positions
        if self.annotated_by:
            for name, dtype in ANNOTATION_COLUMNS.items():
                if name not in self.columns or self.columns[name].dtype != np.dtype(dtype):
                    raise ShardError(f"the column {name} is missing, or of another type")
            self._lengths({"prior_wdl": count + self.branches}, 2)
        if self.kind == "search":
            self._lengths({"number": self.games, "best": count, "plies_left": count})
            self._lengths(dict.fromkeys(("wdl", "result"), count), 2)
            return
        self._lengths(dict.fromkeys(("best", "best_cp", "lines", "lines_cp"), count))
        branch_names = [name for name in LABEL_COLUMNS if name.startswith("branch_")]
        self._lengths(dict.fromkeys(branch_names, self.branches))
        at = self.columns["branch_at"].astype(np.int64)
        if len(at) and ((np.diff(at) < 0).any() or at[-1] >= count):
            raise ShardError("branch_at is not ascending, or beyond the last position")

    def _check_games(self) -> None:
        games = self.games
        self._lengths(dict.fromkeys(("prefix", "results", "chess960"), games))
        if len(self.fens()) != games:
            raise ShardError(f"{len(self.fens())} start positions for {games} games")
        if (self.columns["prefix"] > self.columns["plies"]).any():
            raise ShardError("a game's prefix is longer than the game")
        self._lengths({"moves": int(self.columns["plies"].sum(dtype=np.int64))})

    def _lengths(self, lengths: Mapping[str, int], rows: int = 0) -> None:
        """rows: number of rows of the columns; 0: any."""
        for name, length in lengths.items():
            shape = self.columns[name].shape
            if shape[-1] != length or (rows and shape != (rows, length)):
                entries = " x ".join(map(str, shape))
                raise ShardError(f"the column {name} has {entries} entries, not {length}")


def write_shard(path: Path, shard: Shard) -> None:
    """Write a shard durably; a reader sees the whole file or none. Raises ShardError and OSError."""
    write_atomically(path, shard_bytes(shard), durable=True)


def shard_bytes(shard: Shard) -> bytes:
    """Return the file of a shard. Raises ShardError."""
    shard.check()
    entries, payload = [], []
    for name, column in coding.predicted(shard.columns).items():
        data, packed = coding.pack(name, column)
        entries.append(
            {
                "name": name,
                "dtype": column.dtype.str,
                "shape": list(column.shape),
                "bytes": len(packed),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
        payload.append(packed)
    header = {
        "schema": 1,
        "kind": shard.kind,
        "source": shard.source,
        "games": shard.games,
        "positions": shard.positions,
        "branches": shard.branches,
        "annotated_by": shard.annotated_by,
        "columns": entries,
    }
    text = json.dumps(header, ensure_ascii=False).encode()
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *payload])


def read_header(path: Path) -> dict[str, Any]:
    """Return a shard's header. Raises ShardError and OSError."""
    with path.open("rb") as file:
        return _header(file.read(len(MAGIC) + 4 + MAX_HEADER))[0]


def read_shard(path: Path) -> Shard:
    """Read and check a shard. Raises OSError, and ShardError with the reason."""
    data = path.read_bytes()
    header, start = _header(data)
    if header.get("kind") not in KINDS:
        raise ShardError(f"unknown kind of shard: {header.get('kind')!r}")
    columns: dict[str, NDArray[Any]] = {}
    try:
        for entry in header["columns"]:
            packed = data[start : start + int(entry["bytes"])]
            start += int(entry["bytes"])
            columns[str(entry["name"])] = _column(entry, packed)
    except ShardError:
        raise
    except Exception as error:  # A file of unknown origin can make any part of a reader fail.
        raise ShardError(f"a damaged header: {error!r}") from None
    if start != len(data):
        raise ShardError(f"{len(data):,} bytes, the header lists {start:,}: damaged, import again")
    missing = sorted(KINDS[header["kind"]].keys() - columns.keys())
    if missing:
        raise ShardError(f"the column {missing[0]} is missing: import the games again if 0.2.0 made it")
    known = KINDS[header["kind"]] | (ANNOTATION_COLUMNS if header.get("annotated_by") else {})
    columns = {name: column for name, column in columns.items() if name in known}  # 0.2.0 had others
    try:
        columns = coding.restored(columns)
    except (ValueError, TypeError) as error:
        raise ShardError(f"columns do not fit each other: {error}") from None
    shard = Shard(header["kind"], columns, str(header.get("source", "")), str(header.get("annotated_by", "")))
    shard.check()
    return shard


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and the offset of the columns."""
    if not data.startswith(MAGIC):
        raise ShardError("no shard: it does not begin with WFSHARD1")
    start = len(MAGIC) + 4
    if len(data) < start:
        raise ShardError("truncated in the header")
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    if length > MAX_HEADER or len(data) < start + length:
        raise ShardError("truncated in the header")
    try:
        header = json.loads(data[start : start + length])
    except (ValueError, RecursionError) as error:
        raise ShardError(f"a damaged header: {error}") from None
    if not isinstance(header, dict) or header.get("schema") != 1:
        raise ShardError("a header of another version of the format")
    if not _has_current_annotations(header.get("columns")):
        header["annotated_by"] = ""
    return header, start + length


def _has_current_annotations(entries: object) -> bool:
    """Return False for annotations of 0.2.0, whose values were floats: such shards count as not annotated."""
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    dtypes = {entry.get("name"): entry.get("dtype") for entry in listed}
    return all(dtypes.get(name) == np.dtype(dtype).str for name, dtype in ANNOTATION_COLUMNS.items())


def _column(entry: Mapping[str, Any], packed: bytes) -> NDArray[Any]:
    name, dtype, shape = str(entry["name"]), np.dtype(entry["dtype"]), tuple(int(n) for n in entry["shape"])
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if dtype.hasobject or not 0 <= size <= MAX_COLUMN:
        raise ShardError(f"column {name}: {size:,} bytes, at most {MAX_COLUMN:,}")
    try:
        data = coding.unpack(packed, size)
    except (lzma.LZMAError, EOFError) as error:
        raise ShardError(f"the column {name} is damaged: {error}") from None
    if len(data) != size or hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ShardError(f"the column {name} is damaged")
    return coding.ordered(name, data, dtype, shape)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Games labelled by an engine, as .npz.xz archives in two forms.

Both have columns fens, lens [G], results [G], played [N], and the lines pv_moves, pv_cp [L, N].
The second form adds a best move of its own search, best, best_cp [N], and branches off the game: branch_at,
branch_move, branch_best, branch_best_cp [B], branch_pv_moves, branch_pv_cp [L, B].
Moves and scores are encoded as in a shard.
"""

from __future__ import annotations

import io
import lzma
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.apps.shards import Shard, ShardError

SUFFIX = ".npz.xz"
MAX_BYTES = 128 << 20
"""Largest archive after decompression, and largest sum of its columns: ten times the usual ones."""


def read_labelled_games(path: Path) -> Shard:
    """Return the games of an archive. Raises ShardError with the reason, and OSError."""
    try:
        shard = _shard(_columns(path), path.name)
        shard.check()
    except (ShardError, OSError):
        raise
    except KeyError as error:
        raise ShardError(f"no column {error} in the archive") from None
    except Exception as error:  # A file of unknown origin can make any part of a reader fail.
        raise ShardError(f"damaged, or no archive of labelled games: {error!r}") from None
    return shard


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive, whose sizes are checked before they are read."""
    with lzma.open(path) as packed:
        data = packed.read(MAX_BYTES + 1)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if max(len(data), sum(info.file_size for info in archive.infolist())) > MAX_BYTES:
            raise ShardError(f"more than {MAX_BYTES >> 20} MiB after decompression")
        return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in archive.infolist()}


def _array(data: bytes) -> NDArray[Any]:
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("a column in another version of numpy's format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"a column of shape {shape} in {len(data)} bytes")
    array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def _shard(given: dict[str, NDArray[Any]], name: str) -> Shard:
    for column in ("lens", "results", "played"):
        if given[column].dtype.kind not in "iu":
            raise ShardError(f"the column {column} is {given[column].dtype}, not whole numbers")
    games = len(given["lens"])
    lines, lines_cp = without_repeats(given["pv_moves"], given["pv_cp"])
    columns: dict[str, NDArray[Any]] = {
        # Either a byte string or its bytes as numbers.
        "fens": np.frombuffer(given["fens"].tobytes(), np.uint8),
        "plies": given["lens"].astype(np.uint16),
        "prefix": np.zeros(games, np.uint16),
        "results": given["results"].astype(np.uint8),
        "chess960": np.zeros(games, np.uint8),
        "moves": given["played"].astype(np.uint16),
        "lines": lines,
        "lines_cp": lines_cp,
    }
    if "best" in given:
        columns["best"], columns["best_cp"] = given["best"], given["best_cp"]
        for part in ("at", "move", "best", "best_cp"):
            columns[f"branch_{part}"] = given[f"branch_{part}"]
        columns["branch_lines"], columns["branch_lines_cp"] = without_repeats(
            given["branch_pv_moves"], given["branch_pv_cp"]
        )
    else:
        columns["best"], columns["best_cp"] = lines[0], lines_cp[0]
        columns["branch_at"] = np.zeros(0, np.uint32)
        for part in ("move", "best"):
            columns[f"branch_{part}"] = np.zeros(0, np.uint16)
        columns["branch_best_cp"] = np.zeros(0, np.int16)
        columns["branch_lines"] = np.zeros((len(lines), 0), np.uint16)
        columns["branch_lines_cp"] = np.zeros((len(lines), 0), np.int16)
    return Shard("labels", {key: np.ascontiguousarray(column) for key, column in columns.items()}, name)


def without_repeats(
    moves: NDArray[np.uint16], scores: NDArray[np.int16]
) -> tuple[NDArray[np.uint16], NDArray[np.int16]]:
    """Return lines [L, N] without moves that an earlier line has.
    An interrupted search may list a move twice, from two depths."""
    moves, scores = moves.copy(), scores.copy()
    for later in range(1, len(moves)):
        repeated = (moves[:later] == moves[later]).any(axis=0)
        moves[later, repeated] = 0
        scores[later, repeated] = 0
    return moves, scores

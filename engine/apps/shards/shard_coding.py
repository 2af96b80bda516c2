# SPDX-License-Identifier: GPL-3.0-or-later
"""Compression of a shard's columns: each is predicted from earlier ones, and packed by xz.

A best move is predicted from the move played, the first line from the best move, scores of lines from
each other, a best move's WDL from the search's, and the plies left from those of the position before.
Correct predictions become 0. Moves are packed in the order of positions, other numbers by
bytes: first the low bytes of all, then the next.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAT_STEPS = 16
"""Steps per nat of a stored policy, one byte per move: at most 3 % error of a move's share."""

NO_SHARE = 255
"""A stored share of 0, or of less than 10^-7."""

Columns = Mapping[str, NDArray[Any]]

PRESET = 6
MOVES = ("moves", "best", "lines", "branch_move", "branch_best", "branch_lines")


def share_bytes(nats: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return shares of moves as bytes. nats: -log of the shares, infinite for 0."""
    return np.minimum(np.rint(NAT_STEPS * nats), NO_SHARE).astype(np.uint8)


def wdl_bytes(wdl: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return W and L of WDL [n, 3] in 255ths, [2, n]."""
    return np.ascontiguousarray(np.rint(255 * wdl[:, ::2].clip(0, 1)).astype(np.uint8).T)


def wdl_of(pair: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return WDL [n, 3] of `wdl_bytes`, at most 0.002 from the original."""
    win, loss = pair.astype(np.float32) / 255
    wdl: NDArray[np.float32] = np.stack([win, np.maximum(0, 1 - win - loss), loss], axis=1)
    wdl /= wdl.sum(axis=1, keepdims=True)
    return wdl


def predicted(columns: Columns) -> dict[str, NDArray[Any]]:
    """Return columns without their predictions; `restored` is the inverse."""
    coded = dict(columns)
    coded["best"] = columns["best"] ^ moves_of_samples(columns)
    if "wdl" in columns:
        coded["plies_left"] = np.diff(columns["plies_left"], prepend=np.uint16(0)) + np.uint16(1)
    for prefix in ("", "branch_") if "lines" in columns else ():
        lines = columns[f"{prefix}lines"].copy()
        lines[:1] ^= columns[f"{prefix}best"]
        coded[f"{prefix}lines"] = np.ascontiguousarray(lines.T)
        # Lossless arithmetic modulo 65536.
        scores = columns[f"{prefix}lines_cp"].view(np.uint16).copy()
        scores[1:] -= scores[:-1].copy()
        scores[:1] -= columns[f"{prefix}best_cp"].view(np.uint16)
        coded[f"{prefix}lines_cp"] = scores.view(np.int16)
    return coded


def restored(coded: Columns) -> dict[str, NDArray[Any]]:
    """Return the original columns: the inverse of `predicted`."""
    columns = dict(coded)
    columns["best"] = coded["best"] ^ moves_of_samples(coded)
    if "wdl" in coded:
        columns["plies_left"] = np.cumsum(coded["plies_left"] - np.uint16(1), dtype=np.uint16)
    for prefix in ("", "branch_") if "lines" in coded else ():
        lines = np.array(coded[f"{prefix}lines"].T, order="C")  # a copy even of one line, or one position
        lines[:1] ^= columns[f"{prefix}best"]
        columns[f"{prefix}lines"] = lines
        scores = coded[f"{prefix}lines_cp"].view(np.uint16).copy()
        scores[:1] += coded[f"{prefix}best_cp"].view(np.uint16)
        columns[f"{prefix}lines_cp"] = np.cumsum(scores, axis=0, dtype=np.uint16).view(np.int16)
    return columns


def moves_of_samples(columns: Columns) -> NDArray[np.uint16]:
    """Return the move played in each sample, [N]: all moves except those of the games' prefixes."""
    moves: NDArray[np.uint16] = columns["moves"]
    if not columns["prefix"].any():
        return moves
    plies = columns["plies"].astype(np.int64)
    first = np.repeat(np.cumsum(plies) - plies, plies)
    place = np.arange(len(moves)) - first
    return moves[place >= np.repeat(columns["prefix"].astype(np.int64), plies)]


def pack(name: str, column: NDArray[Any]) -> tuple[bytes, bytes]:
    """Return a column's bytes in packing order, and packed."""
    if name in MOVES:
        data, units = np.ascontiguousarray(column).tobytes(), {"lp": 1, "pb": 1}
    else:
        data, units = np.ascontiguousarray(column).reshape(-1, 1).view(np.uint8).T.tobytes(), {}
    filters = [{"id": lzma.FILTER_LZMA2, "preset": PRESET, **units}]
    return data, lzma.compress(data, check=lzma.CHECK_NONE, filters=filters)


def unpack(packed: bytes, size: int) -> bytes:
    """Return at most size + 1 unpacked bytes. Raises lzma.LZMAError."""
    return lzma.LZMADecompressor().decompress(packed, max_length=size + 1)


def ordered(name: str, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the column of unpacked bytes, whose number must fit dtype and shape."""
    if not data:
        return np.zeros(shape, dtype)
    if name in MOVES:
        return np.frombuffer(data, dtype).reshape(shape)
    return (
        np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1).T)
        .view(dtype)
        .reshape(shape)
    )

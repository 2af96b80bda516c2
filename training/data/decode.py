# SPDX-License-Identifier: GPL-3.0-or-later
"""Decoding of training records to positions, as far as a record contains them."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from engine.apps.shards import (
    CLASSICAL,
    TrainingDataError,
    black_to_move,
    is_canonical,
    reverse_ranks,
    transform_of,
)

PIECES = "PNBRQK"
FILES = "abcdefgh"
MIRROR, FLIP_RANKS, TRANSPOSE = 1, 2, 4
"""The steps of a board transform, applied in this order."""


def boards_of(record: np.void, steps: int = 1) -> NDArray[np.bool_]:
    """Return the pieces of the last `steps` positions, bool [steps, 12, 8, 8] (ours PNBRQK, theirs; rank,
    file), from the view of the side to move, without the board transform."""
    masks = reverse_ranks(np.asarray(record["planes"])[: 13 * steps]).reshape(steps, 13)[:, :12]
    bits = np.unpackbits(np.ascontiguousarray(masks).view(np.uint8), bitorder="little")
    boards = bits.reshape(steps, 12, 8, 8).astype(np.bool_)
    transform = transform_of(record)
    if transform & TRANSPOSE:
        boards = boards.swapaxes(2, 3)[:, :, ::-1, ::-1]
    if transform & FLIP_RANKS:
        boards = boards[:, :, ::-1, :]
    if transform & MIRROR:
        boards = boards[:, :, :, ::-1]
    return boards


def fen_of(record: np.void) -> str:
    """Return the record's position as a FEN. Raises TrainingDataError."""
    black = black_to_move(record)
    boards = boards_of(record, 2)
    en_passant = _en_passant_file(record, boards)
    fields = (
        placement_of(boards[0], black=black),
        "b" if black else "w",
        _castling(record, black=black),
        "-" if en_passant is None else FILES[en_passant] + ("3" if black else "6"),
        str(record["rule50_count"]),
        "1",
    )
    return " ".join(fields)


def placement_of(board: NDArray[np.bool_], *, black: bool) -> str:
    """Return the first field of a FEN. board: bool [12, 8, 8], one of `boards_of`.

    Raises TrainingDataError for two pieces on one square.
    """
    if board.sum(axis=0).max() > 1:
        raise TrainingDataError("two pieces on one square")
    letters = PIECES.swapcase() + PIECES if black else PIECES + PIECES.swapcase()
    squares = [["1"] * 8 for _ in range(8)]
    for piece, rank, file in np.argwhere(board):
        squares[7 - rank if black else rank][file] = letters[piece]
    rows = ("".join(rank) for rank in reversed(squares))
    return "/".join(re.sub("1+", lambda run: str(len(run[0])), row) for row in rows)


def _castling(record: np.void, *, black: bool) -> str:
    input_format = int(record["input_format"])
    ours, theirs = (
        "".join(
            _castling_letter(int(record[f"castling_{side}_{name}"]), letter, input_format)
            for name, letter in (("oo", "K"), ("ooo", "Q"))
        )
        for side in ("us", "them")
    )
    white, others = (theirs, ours) if black else (ours, theirs)
    return white.upper() + others.lower() or "-"


def _castling_letter(right: int, classical: str, input_format: int) -> str:
    if right == 0:
        return ""
    if input_format == CLASSICAL:
        if right != 1:
            raise TrainingDataError(f"a castling right is 0 or 1 in input format 1, not {right}")
        return classical
    if right & (right - 1):
        raise TrainingDataError(f"a castling right names one rook's file, not the bits of {right}")
    return FILES[right.bit_length() - 1]


def _en_passant_file(record: np.void, boards: NDArray[np.bool_]) -> int | None:
    if is_canonical(int(record["input_format"])):
        mask = int(record["side_to_move_or_enpassant"])
        if mask == 0:
            return None
        if mask & (mask - 1):
            raise TrainingDataError(f"en passant is on one file, not on the bits of {mask}")
        file = mask.bit_length() - 1
        return 7 - file if transform_of(record) & MIRROR else file
    # Other formats do not store it: find the pawn that has just moved two ranks.
    now, before = boards[0][6], boards[1][6]
    jumped = before[6] & ~now[6] & now[4] & ~before[4]
    occupied = boards[0].any(axis=0)
    files = np.flatnonzero(jumped & ~occupied[5] & ~occupied[6])
    return int(files[0]) if len(files) == 1 else None

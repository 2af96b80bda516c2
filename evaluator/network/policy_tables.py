# SPDX-License-Identifier: GPL-3.0-or-later
"""Index tables of lc0's policy vector: where heads compute each of its 1858 entries.

Derived from the entries' moves (protocol.policy); no file is read.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from protocol.batch import POLICY_SIZE
from protocol.policy import PROMOTIONS, policy_moves, reaches, square_name

CONVOLUTION_PLANES = 73
"""Used planes of a convolutional policy: 56 queen moves, 8 knight moves, 9 promotions."""

# Order of the convolutional planes: seven distances per direction, clockwise from north (rank step, file
# step).
_DIRECTIONS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
_KNIGHT = ((2, 1), (1, 2), (-1, 2), (-2, 1), (-2, -1), (-1, -2), (1, -2), (2, -1))


@cache
def _index_of_move() -> dict[str, int]:
    return {move: index for index, move in enumerate(policy_moves())}


@cache
def attention_map() -> NDArray[np.int16]:
    """Return the policy index of each entry of an attention policy, or -1: int16 [64 * 64 + 8 * 24]. Entries
    are from*64 + to, then promotions as 24*from_file + 3*to_file + (0 queen, 1 rook, 2 bishop)."""
    index = _index_of_move()
    names = [square_name(square) for square in range(64)]
    plain = [index.get(names[a] + names[b], -1) for a in range(64) for b in range(64)]
    promotions = [
        index.get(names[48 + a] + names[56 + b] + piece, -1)
        for a in range(8)
        for b in range(8)
        for piece in PROMOTIONS
    ]
    return np.array(plain + promotions, dtype=np.int16)


@cache
def convolution_map() -> NDArray[np.int16]:
    """Return the policy index of each element plane*64 + from-square of a convolutional policy, or -1: int16
    [73 * 64]."""
    index = _index_of_move()
    steps = [(dr * n, df * n, "") for dr, df in _DIRECTIONS for n in range(1, 8)]
    steps += [(dr, df, "") for dr, df in _KNIGHT]
    steps += [(1, df, piece) for df in (-1, 0, 1) for piece in "rbq"]
    table = np.full((CONVOLUTION_PLANES, 64), -1, dtype=np.int16)
    for plane, (rank_step, file_step, piece) in enumerate(steps):
        for start in range(64):
            rank, file = start // 8 + rank_step, start % 8 + file_step
            if 0 <= rank < 8 and 0 <= file < 8:
                move = square_name(start) + square_name(rank * 8 + file) + piece
                table[plane, start] = index.get(move, -1)
    return table.reshape(-1)


def source_of_policy(table: NDArray[np.int16]) -> NDArray[np.int32]:
    """Return the inverse of a map above: where a head computes each policy entry, int32 [1858]."""
    source = np.full(POLICY_SIZE, -1, dtype=np.int32)
    used = np.flatnonzero(table >= 0)
    source[table[used]] = used
    assert (source >= 0).all()
    return source


@cache
def position_encoding() -> NDArray[np.float32]:
    """Return the position part of PE_MAP tokens, float32 [64, 64]: -1 for the own square, 1 where a queen or
    knight could go from there on an empty board, else 0."""
    return np.array(
        [[-1.0 if a == b else float(reaches(a, b)) for b in range(64)] for a in range(64)], dtype=np.float32
    )

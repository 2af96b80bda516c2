# SPDX-License-Identifier: GPL-3.0-or-later
"""Lossless packing of input planes to a third of their size, for storage on the device.

The 96 piece planes of eight positions are eight boards. A square holds at most one piece, so four bitboards
hold the bits of its plane's number: 0 empty, 1 to 6 our pawn to king, 7 to 12 theirs. Repetitions are one
byte, the 50-move counter a number. Planes 104 to 108 and 110 are stored unchanged, 111 is all ones. Works for
every input format of the core's encoder. The device unpacks at each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol import POSITION_DTYPE

HISTORY = 8
KEPT_PLANES = (104, 105, 106, 107, 108, 110)
RULE50_PLANE, ONES_PLANE = 109, 111
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True)
class PackedPositions:
    """boards: uint64 [n, 8, 4], the bits of each square's number. masks: uint64 [n, 6], KEPT_PLANES.
    repetitions: uint8 [n], bit h for the position h plies back. rule50: float32 [n], plane 109's value."""

    boards: NDArray[np.uint64]
    masks: NDArray[np.uint64]
    repetitions: NDArray[np.uint8]
    rule50: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rule50)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> PackedPositions:
        return PackedPositions(self.boards[rows], self.masks[rows], self.repetitions[rows], self.rule50[rows])


def pack_positions(positions: NDArray[np.void]) -> PackedPositions:
    """Pack positions. positions: POSITION_DTYPE [n], as the core encodes them."""
    planes = positions["planes"]
    history = planes[:, : 13 * HISTORY].reshape(len(planes), HISTORY, 13)
    boards = np.empty((len(planes), HISTORY, 4), np.uint64)
    for bit in range(4):
        having = [number - 1 for number in range(1, 13) if number >> bit & 1]
        np.bitwise_or.reduce(history[:, :, having], axis=2, out=boards[:, :, bit])
    repeated = history[:, :, 12] != 0
    return PackedPositions(
        boards,
        np.ascontiguousarray(planes[:, KEPT_PLANES]),
        np.packbits(repeated, axis=1, bitorder="little").reshape(-1),
        positions["rule50"].astype(np.float32),
    )


def unpack_positions(packed: PackedPositions) -> NDArray[np.void]:
    """Unpack positions. `training.model.planes` does the same on the device."""
    positions = np.zeros(len(packed), POSITION_DTYPE)
    planes = positions["planes"]
    for number in range(1, 13):
        mask = np.full(packed.boards.shape[:2], _ALL, np.uint64)
        for bit in range(4):
            board = packed.boards[:, :, bit]
            mask &= board if number >> bit & 1 else ~board
        planes[:, number - 1 : 13 * HISTORY : 13] = mask
    repeated = np.unpackbits(packed.repetitions[:, None], axis=1, bitorder="little").astype(bool)
    planes[:, 12 : 13 * HISTORY : 13] = np.where(repeated, _ALL, np.uint64(0))
    planes[:, KEPT_PLANES] = packed.masks
    planes[:, RULE50_PLANE] = _ALL
    planes[:, ONES_PLANE] = _ALL
    positions["rule50"] = packed.rule50
    return positions

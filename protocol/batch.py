# SPDX-License-Identifier: GPL-3.0-or-later
"""The two structs of arrays on the wire: positions to evaluate, and their evaluations.

Both hold little-endian numpy arrays in the wire's layout, so sending and receiving copies nothing.
The same classes are the input and output of evaluator backends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLANES = 112
"""Input planes of an lc0 network: 8 positions of 13 planes, then 8 of castling, clock and constants."""

POLICY_SIZE = 1858
"""Entries of lc0's policy vector."""

MAX_LEGAL_MOVES = 256
"""No chess position has more legal moves (218 is the known maximum)."""

POSITION_DTYPE = np.dtype([("planes", "<u8", (PLANES,)), ("rule50", "<f4"), ("reserved", "<u4")])
"""One encoded position, 904 bytes: plane masks, the value of plane 109, and four zero bytes.

Bit s of mask p is input element [p, s], in the network's input format after its board transform."""

assert POSITION_DTYPE.itemsize == 904


@dataclass(slots=True, eq=False)  # Not frozen: that costs 0.5 µs, and each search step creates one.
class PositionBatch:
    """Positions to evaluate and, for each, the policy indices of its legal moves.

    positions: POSITION_DTYPE [n].
    move_offsets: uint32 [n + 1]; the moves of position i are moves[move_offsets[i]:move_offsets[i + 1]].
    moves: uint16 [m], policy indices below POLICY_SIZE (board transform applied).
    """

    positions: NDArray[np.void]
    move_offsets: NDArray[np.uint32]
    moves: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.positions)

    def slice(self, start: int, stop: int) -> PositionBatch:
        """Return positions start to stop (0 <= start <= stop <= n) with their moves; shares memory."""
        first, last = self.move_offsets[start], self.move_offsets[stop]
        return PositionBatch(
            positions=self.positions[start:stop],
            move_offsets=self.move_offsets[start : stop + 1] - first,
            moves=self.moves[first:last],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[PositionBatch]) -> PositionBatch:
        """Join at least one batch, in order. A single one is returned unchanged, several are copied."""
        if len(parts) == 1:
            return parts[0]
        moves = np.concatenate([part.moves for part in parts])
        before = np.array([*accumulate([len(part.moves) for part in parts[:-1]], initial=0)], np.uint32)
        ends = np.concatenate([part.move_offsets[1:] for part in parts])
        offsets = np.zeros(len(ends) + 1, np.uint32)
        np.add(ends, np.repeat(before, [len(part.positions) for part in parts]), out=offsets[1:])
        # As bytes: numpy takes 20 times as long to concatenate records, because it inspects their dtype each
        # time.
        records: list[Any] = [part.positions for part in parts]
        positions = np.frombuffer(bytearray().join(records), POSITION_DTYPE)
        return cls(positions, offsets, moves)


@dataclass(slots=True, eq=False)  # Not frozen, as above.
class EvaluationBatch:
    """A network's evaluation of a PositionBatch of n positions and m moves.

    logits: float32 [m], raw policy of the legal moves, in the order they were sent.
    wdl: float32 [n, 3], win, draw and loss probabilities for the side to move; q is wdl[:, 0] - wdl[:, 2].
        A network with a single tanh value v gives ((1 + v) / 2, 0, (1 - v) / 2).
    moves_left: float32 [n], expected plies to the end of the game; 0 without a moves-left head.
    """

    logits: NDArray[np.float32]
    wdl: NDArray[np.float32]
    moves_left: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.wdl)

    def split(self, sizes: Iterable[tuple[int, int]]) -> Iterator[EvaluationBatch]:
        """Yield the evaluations of each batch that was concatenated; they share this one's memory.

        sizes: (positions, moves) of each batch, in order.
        """
        start = first = 0
        for positions, moves in sizes:
            stop, last = start + positions, first + moves
            yield EvaluationBatch(self.logits[first:last], self.wdl[start:stop], self.moves_left[start:stop])
            start, first = stop, last

    @classmethod
    def concatenate(cls, parts: Sequence[EvaluationBatch]) -> EvaluationBatch:
        """Join at least one batch, in order. A single one is returned unchanged, several are copied."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            logits=np.concatenate([part.logits for part in parts]),
            wdl=np.concatenate([part.wdl for part in parts]),
            moves_left=np.concatenate([part.moves_left for part in parts]),
        )

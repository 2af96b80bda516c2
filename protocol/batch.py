"""The two arrays-of-structs that travel: positions to evaluate, and their evaluations.

Both are plain containers of numpy arrays, little-endian, laid out exactly as on the wire, so that sending
and receiving them copies nothing. The same classes are the evaluator backends' input and output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PLANES = 112
"""Input planes of an lc0 network: 8 positions of 13 planes, then 8 of castling, clock and constants."""

POLICY_SIZE = 1858
"""Entries of lc0's policy vector."""

MAX_LEGAL_MOVES = 256
"""No chess position has more legal moves (218 is the known maximum)."""

POSITION_DTYPE = np.dtype([("planes", "<u8", (PLANES,)), ("rule50", "<f4"), ("reserved", "<u4")])
"""One encoded position, 904 bytes: plane masks (bit s of mask p is input element [p][s]; in the network's
own input format, board transform applied), the value of plane 109, and four zero bytes."""

assert POSITION_DTYPE.itemsize == 904


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class EvaluationBatch:
    """What a network says about a PositionBatch of n positions and m moves.

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

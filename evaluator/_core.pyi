"""What the evaluator does without the interpreter (evaluator/core)."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from protocol.batch import PositionBatch

CORE_DIGEST: str

class Call(Protocol):
    """A driver's function by its address, and its arguments: at most five integers, addresses or handles. It
    returns a status, 0 for success."""

    @property
    def function(self) -> int: ...
    @property
    def arguments(self) -> tuple[int, ...]: ...

class Turn:
    """A lock."""

    def __init__(self) -> None: ...

def is_sound(batch: PositionBatch) -> bool:
    """Whether `protocol.codec.check_batch` would accept a batch. Raises ValueError if there is not one move
    offset more than there are positions."""

def run_batch(
    parts: Sequence[PositionBatch],
    input: NDArray[np.uint8],
    *,
    offsets_at: int,
    moves_at: int,
    capacity: int,
    turn: Turn,
    before: Sequence[Call],
    in_turn: Sequence[Call],
    after: Sequence[Call],
    outputs: Sequence[tuple[NDArray[np.uint8], NDArray[np.float32]]],
) -> tuple[int, int, bool]:
    """Run one batch on a device while other threads have the interpreter.

    Joins the parts in `input` (positions at 0, move offsets of `capacity` positions at `offsets_at`, moves at
    `moves_at`; bytes), makes the calls until one fails, those of `in_turn` while it holds `turn`, and then
    copies the outputs, each from page-locked memory to an array of the same number of bytes.

    Returns (the number of the call that failed or -1, its status, whether all outputs are finite). Raises
    ValueError when the parts do not fit into `input`.
    """

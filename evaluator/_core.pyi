"""The native parts of the evaluator, which release the GIL (evaluator/core)."""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol._core import Frame, Hub
from protocol.batch import PositionBatch

CORE_DIGEST: str

class Call(Protocol):
    """A driver function by address, with at most five arguments: integers, addresses or handles. It returns a
    status, 0 for success."""

    @property
    def function(self) -> int: ...
    @property
    def arguments(self) -> tuple[int, ...]: ...

class Turn:
    """A lock for the order of queueing."""

    def __init__(self) -> None: ...

def is_sound(batch: PositionBatch) -> bool:
    """Return True if `protocol.codec.check_batch` would accept a batch. Raises ValueError unless there is one
    more move offset than positions."""

def keep_heap_small() -> None:
    """Make this process return large free memory blocks to the system."""

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
    """Run one batch on a device with the GIL released.

    Concatenates the parts in `input` (positions at 0, move offsets of `capacity` positions at `offsets_at`,
    moves at `moves_at`; in bytes). Makes the calls until one fails, those of `in_turn` while holding `turn`.
    Then copies the outputs, each from page-locked memory to an array of the same size.

    Returns (index of the failed call or -1, its status, whether all outputs are finite). Raises ValueError if
    the parts do not fit into `input`.
    """

class Program:
    """A program for batches of up to `positions` positions with up to `most_moves` moves in one slot. Sizes
    and offsets are bytes; all memory is page-locked and given by address.

    input: positions at 0, move offsets at offsets_at, moves at moves_at. output: W D L at 0, moves left and
    logits. steps: calls that queue a batch without waiting. Each has the index of the argument that depends
    on the number of moves (-1: none), its value for no moves, and its increment per move. done: returns 0
    after the batch and `busy` before.
    """

    def __init__(
        self,
        *,
        input: int,
        offsets_at: int,
        moves_at: int,
        positions: int,
        output: int,
        moves_left_at: int,
        logits_at: int,
        most_moves: int,
        steps: Sequence[tuple[Call, int, int, int]],
        done: Call,
        busy: int,
    ) -> None: ...

class DeviceLoop:
    """Serves one connection of a hub without the GIL. Each plain `evaluate` goes to the device at once, even
    while earlier ones run. The client gets each answer as soon as it is ready. Other messages stay in the
    hub. Linux only: elsewhere the module has no such name.

    names: of the network in requests, "" for no name. classes: in the order of their ranks. instance: random
    name of the service's run. network: named in results; "" for none. slots: maximum batches in flight.
    activate: makes the device current for the calling thread. Times are milliseconds of the monotonic clock.

    One thread is in `run`. If a driver call does not return, another thread may call `take_over` and use the
    hub.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        names: Sequence[str],
        classes: Sequence[str],
        instance: str,
        network: str,
        slots: int,
        activate: Call,
    ) -> None: ...
    def prepare(self, slot: int, positions: int, program: Program) -> None:
        """Set the program of a slot for a batch size, if the moves fit. Not while `run` runs."""

    def run(
        self, connection: int, until_ms: float, late_ms: float
    ) -> Literal["other", "woken", "time", "unprepared", "crowded", "failed", "late", "not finite", "taken"]:
        """Serve a connection until there is a reason to stop. other: the hub has another message. woken: its
        watched descriptor is readable. time: `until_ms` has passed. unprepared: the next request has no
        program. crowded: more requests wait than may be in flight. After these, no batch is in flight.
        failed: a driver call failed. late: a batch takes longer than late_ms. not finite: a result is
        infinite or NaN. After these, give up the batches in flight. taken: another thread has done so."""

    @property
    def unprepared(self) -> tuple[int, int]:
        """Positions and moves of the request without a program."""

    def answered(self) -> bytes:
        """Return the batches answered since the last call: for each its times of arrival, launch and end as
        float64, and its positions and rank as uint32."""

    def give_up(self) -> list[tuple[int, list[Frame]]]:
        """Give up the requests in flight and return them with their connections, oldest first; `run` cannot
        be used any more. Not while `run` runs."""

    def take_over(self, stuck_ms: float) -> list[tuple[int, list[Frame]]] | None:
        """The same from another thread, if `run` has been inside the driver for `stuck_ms`; else return
        None."""

    def settle(self) -> bool:
        """Wait until the device has finished the given-up batches. Returns False if it has failed."""

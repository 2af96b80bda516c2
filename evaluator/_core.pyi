"""The native parts of the evaluator, which release the GIL (evaluator/core)."""

from collections.abc import Sequence, Sized
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

class ByteAccount:
    """The account of one client's connection to the gate, in bytes. Any thread may use it, even after the
    connection has ended; it counts nothing then."""

    address: str
    """Address of the client as ZeroMQ would name it: a number, localhost:UID:GID:PID, or empty if unknown."""

    @property
    def arriving(self) -> int:
        """Bytes sent by the client and not taken by the service."""
    @property
    def held(self) -> int:
        """Bytes charged by the service."""
    @property
    def unread(self) -> int:
        """Bytes of answers that the client has not read."""

    def establish(self, *, administrator: bool) -> bool:
        """Admit the client, which has sent its first message. Returns False if there are too many.
        Administrators have reserved places. Before that, the gate may displace the connection."""

    def charge(self, size: int) -> bool:
        """Charge bytes that the service keeps for the client. Returns False, without charging, if there is no
        room."""

    def release(self, size: int) -> None:
        """Release charged bytes."""

    def answer(self, charged: int, size: int) -> None:
        """Convert a request's charge into the bytes of its answer, just before sending; negative bytes if
        sending failed."""

    def took(self, frames: Sequence[Sized], first: int = 0) -> None:
        """Note that the service has a whole message with these frames, from the index `first` on."""

    def cut(self) -> None:
        """End the connection."""

class Gate:
    """The gate between clients and a ROUTER socket, on its own thread. Linux only: elsewhere the module has
    no such name. Sizes are in bytes, times in milliseconds.

    frame, message: maximum size from a client; a message includes all its frames. parts: maximum frames per
    message. arriving: limit of data in transit from one client to the service; beyond it, reading pauses.
    promised: limit of `ByteAccount.charge` including unread answers. kept: limit of the same sum beyond which
    a client that does not read is disconnected. buffered: arriving and unread bytes of all clients.
    connections: concurrent admitted clients at local addresses, and as many at the others. per_source:
    maximum unauthenticated connections of one address. greeting_ms: time limit for ZeroMQ's greeting.
    """

    def __init__(
        self,
        *,
        frame: int,
        message: int,
        parts: int,
        arriving: int,
        kept: int,
        promised: int,
        buffered: int,
        connections: int,
        per_source: int,
        greeting_ms: int,
    ) -> None:
        """Raises RuntimeError on a system error."""

    def listen(self, listener: int, path: str, *, local: bool, keys: bool) -> None:
        """Take over a listening socket by its descriptor. Its clients are connected to the ipc socket at
        `path`. local: only the service's user can connect to it. keys: the service requires CURVE there."""

    def stop_listening(self) -> None:
        """Accept no more connections."""

    def link_of(self, descriptor: int) -> ByteAccount | None:
        """Return the connection behind one that the ROUTER has accepted; None if it has ended or is not the
        gate's."""

    def __len__(self) -> int:
        """Return the number of open connections."""

    @property
    def buffered(self) -> int:
        """Arriving and unread bytes of all connections."""

    def counts(self) -> dict[str, int]:
        """Return the number of ended connections by reason; "peer" if the client or the service has ended
        it."""

    def news(self) -> list[tuple[str, str]]:
        """Return address and reason of recently closed or refused connections, since the last call."""

    def close(self, linger_ms: int) -> None:
        """End all connections once their peers have and all answers have been read, or after the time
        limit."""

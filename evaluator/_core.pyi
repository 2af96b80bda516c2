"""What the evaluator does without the interpreter (evaluator/core)."""

from collections.abc import Sequence, Sized
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol._core import Frame, Hub
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

def keep_heap_small() -> None:
    """Have this process give large blocks of memory back when they are free."""

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

class Program:
    """How a device is made to run batches of up to `positions` positions with up to `most_moves` moves in one
    of its batches in flight. All sizes and places are bytes, all memory is page-locked and given by its
    address.

    input: positions at 0, move offsets at offsets_at, moves at moves_at. output: W D L at 0, moves left and
    logits. steps: the calls that queue a batch without waiting for it; each with the argument that depends on
    the number of moves (-1: none), its value for none, and what each move adds. done: returns 0 when the
    batch is over and `busy` before.
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
    """Serves one connection of a hub without the interpreter: each plain `evaluate` goes to the device as
    soon as it is there, while the device may have the ones before, and each answer to the client as soon as
    the device has it. All else is left in the hub. Linux only: elsewhere the module has no such name.

    names: by which requests name the network, "" for no name. classes: in the order of their ranks. instance:
    names the run of the service. network: what results name as theirs, "" for nothing. slots: batches that
    may be in flight. activate: makes the device the calling thread's. Times are milliseconds of the monotonic
    clock.

    One thread is in `run`. A driver that does not return holds it up; another thread may then `take_over`,
    and the hub is that one's.
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
        """Have batches of so many positions run by this program in a slot, if their moves fit it. Not while
        `run` runs."""

    def run(
        self, connection: int, until_ms: float, late_ms: float
    ) -> Literal["other", "woken", "time", "unprepared", "crowded", "failed", "late", "not finite", "taken"]:
        """Serve a connection until there is a reason to stop: the hub has something for somebody else, what
        it watches is readable, it is `until_ms`, there is no program for the next request, or more requests
        wait than may be in flight. Then nothing is in flight. Otherwise a call of the driver has failed, a
        batch takes longer than late_ms or what came out is no number, and what is in flight is to be given
        up; or that has been taken by another thread."""

    @property
    def unprepared(self) -> tuple[int, int]:
        """Positions and moves of the request for which there is no program."""

    def answered(self) -> bytes:
        """The batches answered since the last call: for each the times at which it arrived, was launched and
        ended, as float64, and its positions and rank, as uint32."""

    def give_up(self) -> list[tuple[int, list[Frame]]]:
        """The requests in flight, oldest first, with their connections: nobody answers them now, and `run`
        serves nothing any more. Not while `run` runs."""

    def take_over(self, stuck_ms: float) -> list[tuple[int, list[Frame]]] | None:
        """The same from another thread, if the one in `run` has been inside of the driver for so long; else
        None."""

    def settle(self) -> bool:
        """Wait until the device has done with what was given up; False if it has failed."""

class ByteAccount:
    """The account of one client's connection to the gate, in bytes. Any thread may use it, also after the
    connection has ended: then it counts nothing any more."""

    address: str
    """Of the client, as ZeroMQ would name it: a number, localhost:UID:GID:PID, or empty if it is not
    known."""

    @property
    def arriving(self) -> int:
        """Sent by the client, and not taken by the service."""
    @property
    def held(self) -> int:
        """Charged by the service."""
    @property
    def unread(self) -> int:
        """Of answers that the client has not read."""

    def establish(self, *, administrator: bool) -> bool:
        """Let the client in, which has sent its first message; False if there are too many. An administrator
        has places of its own. Until then the gate ends the connection when another one needs its place."""

    def charge(self, size: int) -> bool:
        """Count bytes that the service keeps for the client; False, and none, if there is no room."""

    def release(self, size: int) -> None:
        """Take them off again."""

    def answer(self, charged: int, size: int) -> None:
        """Turn what was charged for a request into the bytes of an answer, just before it is sent; negative
        bytes if it could not be."""

    def took(self, frames: Sequence[Sized], first: int = 0) -> None:
        """Tell that the service has a whole message, with these frames from the first one on."""

    def cut(self) -> None:
        """Have the connection ended."""

class Gate:
    """Stands between clients and a ROUTER socket, on a thread of its own. Linux only: elsewhere the module
    has no such name. All sizes are in bytes, all times in milliseconds.

    frame, message: the largest from a client, a message with all its frames. parts: most frames of a message.
    arriving: on the way from one client to the service; beyond, the client waits. promised: what
    `ByteAccount.charge` allows with the unread answers. kept: the same sum, beyond which a client that does
    not read is closed. buffered: arriving and unread of all clients. connections: clients that are let in at
    a time, at local addresses and again at the others. per_source: connections of one address that are not
    let in, at most. greeting_ms: in which a client has to show that it speaks ZeroMQ.
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
        """Raises RuntimeError if the system refuses."""

    def listen(self, listener: int, path: str, *, local: bool, keys: bool) -> None:
        """Take a listening socket over, by its descriptor. Clients that connect to it are connected to the
        ipc socket of that path. local: only the user of the service can connect to it. keys: the service
        demands CURVE there."""

    def stop_listening(self) -> None:
        """Take no more connections."""

    def link_of(self, descriptor: int) -> ByteAccount | None:
        """The connection behind one that the ROUTER has accepted; None if it has ended or is none of the
        gate's."""

    def __len__(self) -> int:
        """Connections at present."""

    @property
    def buffered(self) -> int:
        """Bytes of all connections, arriving and unread."""

    def counts(self) -> dict[str, int]:
        """How many connections have ended, by reason; "peer" where the client or the service has ended it."""

    def news(self) -> list[tuple[str, str]]:
        """Address and reason of some that were closed or refused since the last call."""

    def close(self, linger_ms: int) -> None:
        """End all connections: once their peers have, and all answers have been read, or after that time."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""A backend that leases its batch buffers. Its driver is written in Python and scripted by the test."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evaluator._core import Program
from evaluator.backends.gpu.driver.device import NOT_READY, Call
from evaluator.backends.gpu.run.in_flight import Layout
from protocol.batch import POSITION_DTYPE, EvaluationBatch, PositionBatch
from tests.evaluator.service.echo import WAIT_S, EchoBackend, expected

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)

SLOTS = 2


@dataclass
class Room:
    """The page-locked memory of a batch in flight. moves: of the batch in it."""

    layout: Layout
    input: NDArray[np.uint8] = field(init=False)
    output: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        self.input = np.zeros(self.layout.input_bytes, np.uint8)
        self.output = np.zeros(self.layout.output_bytes, np.uint8)

    def batch(self) -> PositionBatch:
        """What is to be evaluated: all positions that have moves."""
        layout = self.layout
        offsets = self.input[layout.offsets_at :][: 4 * (layout.positions + 1)].view(np.uint32)
        count = int(np.count_nonzero(np.diff(offsets)))
        positions = self.input[: count * POSITION_DTYPE.itemsize].view(POSITION_DTYPE)
        moves = self.input[layout.moves_at :][: 2 * int(offsets[count])].view(np.uint16)
        return PositionBatch(positions, offsets[: count + 1], moves)

    def put(self, evaluation: EvaluationBatch) -> None:
        """Write an answer."""
        layout = self.layout
        for at, array in (
            (0, evaluation.wdl),
            (layout.moves_left_at, evaluation.moves_left),
            (layout.logits_at, evaluation.logits),
        ):
            self.output[at : at + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).ravel()


class LeasingBackend(EchoBackend):
    """An EchoBackend that leases its batches.

    direct: sizes of the batches that were run so. asked: those for which programs were asked for. computed:
    does what the device does. done: what the driver says of a batch that was queued. queue: what it says when
    one is queued.
    """

    finite = True

    def __init__(self, max_batch: int = 32) -> None:
        super().__init__(max_batch)
        self.direct: list[int] = []
        self.asked: list[int] = []
        self.computed: Callable[[PositionBatch], EvaluationBatch] = expected
        self.done: Callable[[], int] = lambda: 0
        self.queue: Callable[[], int] = lambda: 0
        self.leased = False
        self.released = threading.Event()
        self.version = 0
        self._rooms = [Room(Layout(max_batch)) for _ in range(SLOTS)]
        self._functions = [FUNCTION(each) for each in (self._launch, self._done, self._activate)]

    # -- evaluator.backends.common.buffer_lease.BufferLease

    slots = SLOTS

    @property
    def activate(self) -> Call:
        return self._call(2, 0)

    def lease_buffers(self) -> "LeasingBackend | None":
        if self.leased:
            return None
        self.leased = True
        self.released.clear()
        return self

    def release(self) -> None:
        assert self.leased
        self.leased = False
        self.released.set()

    def program(self, slot: int, positions: int, moves: int) -> Program | None:
        room = self._rooms[slot]
        layout = room.layout
        if positions > layout.positions:
            return None
        self.asked.append(positions)
        return Program(
            input=room.input.ctypes.data,
            offsets_at=layout.offsets_at,
            moves_at=layout.moves_at,
            positions=layout.positions,
            output=room.output.ctypes.data,
            moves_left_at=layout.moves_left_at,
            logits_at=layout.logits_at,
            most_moves=layout.max_moves,
            steps=[(self._call(0, slot), 1, 1000, 2)],
            done=self._call(1, slot),
            busy=NOT_READY,
        )

    # -- the driver

    def _call(self, function: int, slot: int) -> Call:
        address = ctypes.cast(self._functions[function], ctypes.c_void_p).value or 0
        return Call("", address, (slot, 0))

    def _launch(self, slot: int, length: int) -> int:
        room = self._rooms[slot]
        batch = room.batch()
        assert length == 1000 + 2 * len(batch.moves)
        self.direct.append(len(batch))
        status = self.queue()
        if status == 0:
            room.put(self.computed(batch))
        return status

    def _done(self, slot: int, _: int) -> int:
        return self.done()

    def _activate(self, _: int, __: int) -> int:
        return 0


class Held:
    """What a driver says of batches until it is told that they are over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._changed = threading.Condition()
        self._calls = self._seen = 0

    def __call__(self) -> int:
        with self._changed:
            self._calls += 1
            self._changed.notify_all()
        return 0 if self.over.is_set() else NOT_READY

    def wait_asked(self, times: int = 1) -> None:
        """Wait until it was asked this many times since the last wait."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._calls >= self._seen + times, WAIT_S)
            self._seen = self._calls

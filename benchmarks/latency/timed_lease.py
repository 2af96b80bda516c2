# SPDX-License-Identifier: GPL-3.0-or-later
"""Batch buffers of a simulated device, leased like those of a GPU backend."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np

from evaluator._core import Program
from evaluator.backends.gpu.driver.device import NOT_READY, Call
from evaluator.backends.gpu.run.in_flight import Layout
from protocol.batch import EvaluationBatch

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)

SLOTS = 2


class TimedBufferLease:
    """Two batches in flight, whose driver is Python: a call takes some microseconds more than a GPU's.

    answer: returns the result for N positions and M moves, and its time. positions: maximum in a batch.
    """

    slots, version = SLOTS, 0

    def __init__(self, answer: Callable[[int, int], tuple[EvaluationBatch, float]], positions: int) -> None:
        self._answer = answer
        self._layout = layout = Layout(positions)
        self._inputs = [np.zeros(layout.input_bytes, np.uint8) for _ in range(SLOTS)]
        self._outputs = [np.zeros(layout.output_bytes, np.uint8) for _ in range(SLOTS)]
        self._offsets = [
            each[layout.offsets_at :][: 4 * (positions + 1)].view(np.uint32) for each in self._inputs
        ]
        self._ready_s = [0.0] * SLOTS
        self._functions = [FUNCTION(each) for each in (self._queue, self._done, self._activate)]
        self.activate = self._call(2, 0)

    def release(self) -> None:
        """Do nothing: nobody else uses them."""

    def program(self, slot: int, positions: int, moves: int) -> Program | None:
        """See `evaluator.backends.common.buffer_lease.BufferLease`."""
        layout = self._layout
        if positions > layout.positions or moves > layout.max_moves:
            return None
        return Program(
            input=self._inputs[slot].ctypes.data,
            offsets_at=layout.offsets_at,
            moves_at=layout.moves_at,
            positions=layout.positions,
            output=self._outputs[slot].ctypes.data,
            moves_left_at=layout.moves_left_at,
            logits_at=layout.logits_at,
            most_moves=layout.max_moves,
            steps=[(self._call(0, slot), 1, 0, 1)],
            done=self._call(1, slot),
            busy=NOT_READY,
        )

    def _call(self, function: int, slot: int) -> Call:
        address = ctypes.cast(self._functions[function], ctypes.c_void_p).value or 0
        return Call("", address, (slot, 0))

    def _queue(self, slot: int, moves: int) -> int:
        # The offsets of missing positions equal the last one's.
        count = int(np.searchsorted(self._offsets[slot], moves))
        evaluation, self._ready_s[slot] = self._answer(count, moves)
        output, layout = self._outputs[slot].view(np.float32), self._layout
        output[: 3 * count] = evaluation.wdl.reshape(-1)
        output[layout.moves_left_at // 4 :][:count] = evaluation.moves_left
        output[layout.logits_at // 4 :][:moves] = evaluation.logits
        return 0

    def _done(self, slot: int, _: int) -> int:
        return 0 if time.perf_counter() >= self._ready_s[slot] else NOT_READY

    def _activate(self, _: int, __: int) -> int:
        return 0

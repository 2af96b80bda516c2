# SPDX-License-Identifier: GPL-3.0-or-later
"""A batch in flight with its page-locked buffers: submission to a device, and reading of the results.

Calls are prepared here and then made together by evaluator._core without the GIL. From Python, each driver
call would release the GIL and wait for it again while the I/O thread is busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluator._core import Turn, run_batch
from evaluator.backends.gpu.driver.device import Call, Calls, Gpu, HostBuffer, NotFiniteOutput
from evaluator.backends.gpu.plan.weights import round_up
from evaluator.backends.gpu.run.device_streams import DeviceStream
from evaluator.backends.gpu.run.memory import Memory
from protocol.batch import MAX_LEGAL_MOVES, POLICY_SIZE, POSITION_DTYPE, EvaluationBatch, PositionBatch

DIRECT_POSITIONS = 64
"""Batches up to this size are accessed in page-locked memory without copies. 58 KB over PCIe cost 15 to 40 us
less than the two copies and their events, on an H200."""

_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets of the parts of a batch's inputs and outputs in their blocks.

    The moves come last, so that the unused part of their space is not copied.
    """

    positions: int

    @property
    def offsets_at(self) -> int:
        return round_up(self.positions * POSITION_DTYPE.itemsize, _ALIGNMENT)

    @property
    def moves_at(self) -> int:
        return self.offsets_at + round_up(4 * (self.positions + 1), _ALIGNMENT)

    @property
    def max_moves(self) -> int:
        """Capacity in moves: all legal moves, or one whole policy vector, which tests use."""
        return self.positions * MAX_LEGAL_MOVES + POLICY_SIZE

    @property
    def input_bytes(self) -> int:
        return self.sent_bytes(self.max_moves)

    def sent_bytes(self, moves: int) -> int:
        """Return the bytes of the inputs for a number of moves."""
        return self.moves_at + 2 * moves

    @property
    def moves_left_at(self) -> int:
        return round_up(12 * self.positions, _ALIGNMENT)

    @property
    def logits_at(self) -> int:
        return self.moves_left_at + round_up(4 * self.positions, _ALIGNMENT)

    @property
    def output_bytes(self) -> int:
        return self.answered_bytes(self.max_moves)

    def answered_bytes(self, moves: int) -> int:
        """Return the bytes of the outputs for a number of moves."""
        return self.logits_at + 4 * moves


@dataclass(frozen=True, slots=True)
class Recorded:
    """A graph and the stream in which it is launched."""

    graph: Any
    stream: Any


@dataclass(slots=True)
class InFlight:
    """The buffers of one batch in flight. device_input, device_output: 0 if nothing is copied. graphs: by
    batch size. device_stream: for concurrent computation; None without one."""

    stream: Any
    uploaded: Any
    computed: Any
    downloaded: Any
    host_input: HostBuffer
    host_output: HostBuffer
    device_input: int
    device_output: int
    graphs: dict[int, Recorded] = field(default_factory=dict)
    device_stream: DeviceStream | None = None

    def addresses(self, layout: Layout, *, direct: bool) -> dict[str, int]:
        """Return the addresses of a batch's inputs and outputs. direct: in page-locked memory."""
        inputs = self.host_input.address if direct else self.device_input
        outputs = self.host_output.address if direct else self.device_output
        return {
            "positions": inputs,
            "move_offsets": inputs + layout.offsets_at,
            "moves": inputs + layout.moves_at,
            "wdl": outputs,
            "moves_left": outputs + layout.moves_left_at,
            "logits": outputs + layout.logits_at,
        }


def allocate_in_flight(device: Gpu, memory: Memory, layout: Layout, *, copied: bool) -> InFlight:
    """Allocate buffers for batches up to a layout. copied: also on the device, for batches that are not
    accessed in page-locked memory. Raises DeviceError."""
    host_input = memory.allocate_host(layout.input_bytes)
    host_output = memory.allocate_host(layout.output_bytes)
    host_input.array[:] = 0
    device_input = memory.allocate(layout.input_bytes) if copied else 0
    if copied:
        device.write(device_input, host_input.array)
    return InFlight(
        device.create_stream(),
        device.create_event(),
        device.create_event(),
        device.create_event(),
        host_input,
        host_output,
        device_input,
        memory.allocate(layout.output_bytes) if copied else 0,
    )


class BatchRunner:
    """Runs batches on a device, in at most as many threads as there are batches in flight.

    calls: of the device. direct: batches up to this size are accessed in page-locked memory.
    """

    def __init__(self, calls: Calls, direct: int) -> None:
        self.calls = calls
        self._direct = direct
        # Held while a batch queues its computation: its waits and its events belong together.
        self._queueing = Turn()

    def run(
        self, batch: InFlight, layout: Layout, recorded: Recorded, parts: Sequence[PositionBatch]
    ) -> EvaluationBatch:
        """Run a recorded graph on the concatenation of the parts. Raises DeviceError, including
        NotFiniteOutput."""
        count, moves = sum(map(len, parts)), sum(len(part.moves) for part in parts)
        before, in_turn, after = self._submission(batch, layout, recorded, moves)
        logits, moves_left = np.empty(moves, np.float32), np.empty(count, np.float32)
        wdl = np.empty((count, 3), np.float32)
        memory = batch.host_output.array
        failed, status, finite = run_batch(
            parts,
            batch.host_input.array,
            offsets_at=layout.offsets_at,
            moves_at=layout.moves_at,
            capacity=layout.positions,
            turn=self._queueing,
            before=before,
            in_turn=in_turn,
            after=after,
            outputs=[
                (memory[at : at + array.nbytes], array)
                for at, array in ((0, wdl), (layout.moves_left_at, moves_left), (layout.logits_at, logits))
            ],
        )
        if failed >= 0:
            self.calls.raise_failure([*before, *in_turn, *after][failed], status)
        if not finite:
            raise NotFiniteOutput("the output is infinite or not a number")
        return EvaluationBatch(logits, wdl, moves_left)

    def _submission(
        self, batch: InFlight, layout: Layout, recorded: Recorded, moves: int
    ) -> tuple[list[Call], list[Call], list[Call]]:
        """Return the calls before the batch's turn to queue, those that queue it, and those after."""
        before, in_turn, after = self.queueing(batch, layout, recorded, moves)
        activate, synchronize = self.calls.activate(), self.calls.synchronize(batch.downloaded)
        return [activate, *before], in_turn, [*after, synchronize]

    def queueing(
        self, batch: InFlight, layout: Layout, recorded: Recorded, moves: int
    ) -> tuple[list[Call], list[Call], list[Call]]:
        """Return the same without activating the device and without waiting: the batch has ended when the
        event `downloaded` has happened. The number of moves changes only the lengths of copies."""
        calls, graph, compute = self.calls, recorded.graph, recorded.stream
        if layout.positions <= self._direct:
            return (
                [],
                [calls.launch_graph(graph, compute), calls.record(batch.downloaded, compute)],
                [],
            )
        sent, answered = layout.sent_bytes(moves), layout.answered_bytes(moves)
        return (
            [
                calls.upload(batch.device_input, batch.host_input.host_address, sent, batch.stream),
                calls.record(batch.uploaded, batch.stream),
            ],
            [
                calls.wait_for(compute, batch.uploaded),
                calls.launch_graph(graph, compute),
                calls.record(batch.computed, compute),
            ],
            [
                calls.wait_for(batch.stream, batch.computed),
                calls.download(batch.host_output.host_address, batch.device_output, answered, batch.stream),
                calls.record(batch.downloaded, batch.stream),
            ],
        )

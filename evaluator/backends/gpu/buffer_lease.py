# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease of an executor's batch buffers for the loop without the interpreter (core/device_loop)."""

from __future__ import annotations

import sys

from evaluator.backends.common.base import BackendError
from evaluator.backends.gpu.driver.device import NOT_READY, Call, DeviceError
from evaluator.backends.gpu.run.executor import Executor
from evaluator.backends.gpu.run.in_flight import InFlight, Layout, Recorded

if sys.platform == "linux":
    from evaluator._core import Program


class GpuBufferLease:
    """See `evaluator.backends.common.buffer_lease.BufferLease`."""

    def __init__(self, executor: Executor, device: str) -> None:
        """executor: its buffers are leased already. device: in words, for errors."""
        self._executor = executor
        self._device = device
        self.slots = len(executor.in_flight)
        self.version = executor.version
        self.activate = executor.runner.calls.activate()

    def program(self, slot: int, positions: int, moves: int) -> Program | None:
        """See `BufferLease`."""
        executor, batch = self._executor, self._executor.in_flight[slot]
        try:
            size = executor.bucket(positions, moves)
        except ValueError:
            return None
        try:
            recorded = executor.recorded(batch, size)
        except DeviceError as error:
            raise BackendError(f"{self._device}: {error}") from error
        layout = Layout(size)
        # The number of moves changes only the lengths of copies.
        none, one = (_queueing(executor, batch, layout, recorded, moves) for moves in (0, 1))
        return Program(
            input=batch.host_input.host_address,
            offsets_at=layout.offsets_at,
            moves_at=layout.moves_at,
            positions=size,
            output=batch.host_output.host_address,
            moves_left_at=layout.moves_left_at,
            logits_at=layout.logits_at,
            most_moves=layout.max_moves,
            steps=[_step(*calls) for calls in zip(none, one, strict=True)],
            done=executor.runner.calls.query(batch.downloaded),
            busy=NOT_READY,
        )

    def release(self) -> None:
        """See `BufferLease`."""
        self._executor.release_buffers()


def lease_buffers(executor: Executor, device: str) -> GpuBufferLease | None:
    """Lease all batch buffers of an executor. Returns None if one is in use, or on other systems than
    Linux."""
    if sys.platform != "linux":
        return None
    return GpuBufferLease(executor, device) if executor.lease_buffers() else None


def _queueing(
    executor: Executor, batch: InFlight, layout: Layout, recorded: Recorded, moves: int
) -> list[Call]:
    """Return all calls that queue a batch with this number of moves."""
    before, in_turn, after = executor.runner.queueing(batch, layout, recorded, moves)
    return [*before, *in_turn, *after]


def _step(none: Call, one: Call) -> tuple[Call, int, int, int]:
    """Return a call, the index of its argument that depends on the number of moves (-1: none), its value for
    no moves, and its increment per move. none, one: the call for zero moves and for one."""
    for index, (fixed, next_) in enumerate(zip(none.arguments, one.arguments, strict=True)):
        if fixed != next_:
            return none, index, fixed, next_ - fixed
    return none, -1, 0, 0

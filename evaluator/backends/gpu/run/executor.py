# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a Plan on a Device: uploads weights once, and captures one graph per batch size and batch in flight.

Batches compute in one stream with one workspace, so that they do not slow each other down. Small ones compute
concurrently if that is faster (device_streams.py). Copies of one batch overlap the computation of another.
Small batches are not copied: kernels access the page-locked memory directly, as they always do on a device
that shares the CPU's memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.gpu.blas.library import Library
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu, OutOfDeviceMemory
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import Branch, Launch, LibraryStep, Program
from evaluator.backends.gpu.run.device_streams import DeviceStreams
from evaluator.backends.gpu.run.in_flight import (
    DIRECT_POSITIONS,
    BatchRunner,
    InFlight,
    Layout,
    Recorded,
    allocate_in_flight,
)
from evaluator.backends.gpu.run.memory import Memory, upload
from protocol.batch import EvaluationBatch, PositionBatch

IN_FLIGHT = 2
"""Batches of a network that may be in flight."""


class Executor:
    """One network on one device. At most as many threads as there are batches in flight may call `evaluate`
    concurrently."""

    def __init__(
        self,
        device: Gpu,
        compiler: Compiler,
        plan: Plan,
        buckets: tuple[int, ...],
        *,
        libraries: Sequence[Library] = (),
        planned: Callable[[], None] = lambda: None,
        lease: DeviceLease = exclusive_lease,
    ) -> None:
        """buckets: ascending batch sizes, to which batches are padded. planned: called once the weights are
        packed, which needs all CPU cores. lease: of the device, for timing batches. Raises PlanError and
        DeviceError, including OutOfDeviceMemory with everything freed."""
        self.device = device
        self.buckets = buckets
        self.lease = lease
        self._programs: dict[int, Program] = {}
        self.alternatives: dict[int, tuple[Program, ...]] = {}
        """The programs of each batch size with more than one."""
        try:
            for size in buckets:
                program = self._programs[size] = plan.program(size)
                compiler.start(key for key, _ in program.kernels())  # during the rest of the planning
            for size in buckets:
                others = plan.persistent_programs(size)
                if others:
                    self.alternatives[size] = (self._programs[size], *others)
        except BaseException:
            compiler.finish()
            raise
        planned()
        self._capturing = threading.Lock()
        self._direct = buckets[-1] if device.info.is_small_apu else DIRECT_POSITIONS
        self._memory, self._memory_of_streams = Memory(device), Memory(device)
        self.beside: frozenset[int] = frozenset()
        """Batch sizes that compute concurrently."""
        try:
            self._allocate(compiler, plan, {library.name: library for library in libraries})
        except BaseException:
            self.close()
            raise
        self._free = list(self.in_flight)
        self._freed = threading.Condition()
        self.version = 0
        """Changes whenever a batch size's program changes."""

    def _allocate(self, compiler: Compiler, plan: Plan, libraries: dict[str, Library]) -> None:
        device = self.device
        others = [program for programs in self.alternatives.values() for program in programs[1:]]
        programs = [*self._programs.values(), *others]
        kernels = compiler.load([key for program in programs for key in program.kernels()])
        used = {name for program in programs for name in program.libraries()}
        workspace = max((libraries[name].workspace for name in used), default=0)
        written = {name: plan.weights[name] for program in programs for name in program.written}
        weights = {name: array for name, array in plan.weights.items() if name not in written}
        self._streams = DeviceStreams(
            device, kernels, libraries, upload(self._memory, weights), written, workspace
        )
        self.device_stream = self._streams.open(self._memory, programs)
        """The stream of batches that compute in sequence."""
        self.runner = BatchRunner(device.calls(), self._direct)
        largest = Layout(self.buckets[-1])
        copied = largest.positions > self._direct
        self.in_flight = [
            allocate_in_flight(device, self._memory, largest, copied=copied) for _ in range(IN_FLIGHT)
        ]
        self.device_stream.recorder.warm_up(
            [
                (program, self._exchange_addresses(self.in_flight[0], size))
                for size, program in self._programs.items()
            ],
            self.device_stream.stream,
        )

    # -- evaluating ------------------------------------------------------------------------------------

    def evaluate(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        """Evaluate the concatenation of the parts. Raises DeviceError, including NotFiniteOutput, and
        ValueError for more positions than the largest batch size."""
        moves = sum(len(part.moves) for part in parts)
        if moves > Layout(self.buckets[-1]).max_moves:
            # Too many moves: only requests for whole policy vectors have so many.
            return self._in_halves(PositionBatch.concatenate(parts))
        with self._freed:
            self._freed.wait_for(lambda: bool(self._free))
            batch = self._free.pop()
        try:
            size = self.bucket(sum(map(len, parts)), moves)
            return self.runner.run(batch, Layout(size), self.recorded(batch, size), parts)
        finally:
            with self._freed:
                self._free.append(batch)
                self._freed.notify()

    def lease_buffers(self) -> bool:
        """Reserve all batches in flight for the caller, who runs them with `runner`. Returns False, and
        reserves none, if one is in use."""
        with self._freed:
            leased = len(self._free) == len(self.in_flight)
            if leased:
                self._free.clear()
            return leased

    def release_buffers(self) -> None:
        """Make all batches in flight available again."""
        with self._freed:
            self._free[:] = self.in_flight
            self._freed.notify_all()

    def _in_halves(self, batch: PositionBatch) -> EvaluationBatch:
        if len(batch) == 1:
            raise ValueError(f"a position has {len(batch.moves)} moves; the largest batch has room for fewer")
        middle = len(batch) // 2
        halves = batch.slice(0, middle), batch.slice(middle, len(batch))
        return EvaluationBatch.concatenate([self.evaluate([half]) for half in halves])

    def bucket(self, positions: int, moves: int) -> int:
        """Return the batch size for a batch. Raises ValueError if it is too large."""
        for size in self.buckets:
            if positions <= size and moves <= Layout(size).max_moves:
                return size
        raise ValueError(
            f"{positions} positions with {moves} moves are more than a batch of {self.buckets[-1]} holds"
        )

    def recorded(self, batch: InFlight, size: int) -> Recorded:
        """Return the recorded graph of a batch in flight for a batch size. Raises DeviceError."""
        recorded = batch.graphs.get(size)
        if recorded is None:
            device_stream = (
                batch.device_stream
                if batch.device_stream is not None and size in self.beside
                else self.device_stream
            )
            with self._capturing:
                graph = device_stream.recorder.capture(
                    self._programs[size], self._exchange_addresses(batch, size)
                )
                recorded = batch.graphs[size] = Recorded(graph, device_stream.stream)
        return recorded

    def _exchange_addresses(self, batch: InFlight, size: int) -> dict[str, int]:
        return batch.addresses(Layout(size), direct=size <= self._direct)

    # -- programs --------------------------------------------------------------------------------------

    def select(self, size: int, program: Program) -> None:
        """Use one of a batch size's alternatives from now on, in sequence. No batch may be in flight."""
        self._programs[size] = program
        self.beside -= {size}
        self.version += 1
        for batch in self.in_flight:
            batch.graphs.pop(size, None)

    # -- device streams --------------------------------------------------------------------------------

    def may_compute_beside(self, size: int) -> bool:
        """Return True if a batch size's program may run several times concurrently."""
        return all(self._streams.libraries[name].beside for name in self._programs[size].libraries())

    def open_streams(self, sizes: Collection[int]) -> bool:
        """Give each batch in flight except the first a device stream for these batch sizes, with the current
        programs. Returns False, with nothing allocated, if memory is short. Raises DeviceError."""
        programs = [self._programs[size] for size in sizes]
        try:
            streams = [self._streams.open(self._memory_of_streams, programs) for _ in self.in_flight[1:]]
        except OutOfDeviceMemory:
            self._memory_of_streams.free()
            return False
        for batch, device_stream in zip(self.in_flight[1:], streams, strict=True):
            batch.device_stream = device_stream
        return True

    def compute_beside(self, sizes: Collection[int]) -> None:
        """Compute batches of these sizes (with streams) concurrently from now on, and others in sequence. An
        empty argument closes the streams. No batch may be in flight."""
        changed, self.beside = self.beside.symmetric_difference(sizes), frozenset(sizes)
        self.version += 1
        for batch in self.in_flight[1:]:
            for size in changed:
                batch.graphs.pop(size, None)
            if not sizes:
                batch.device_stream = None
        if not sizes:
            self._memory_of_streams.free()

    # -- measuring -------------------------------------------------------------------------------------

    def time(self, size: int, repeats: int = 10) -> float:
        """Return the milliseconds of a bucket's computation alone, back to back; the best of three runs."""
        return self._time(self.in_flight[:1], size, repeats)

    def time_together(self, size: int, repeats: int = 10) -> float:
        """Return the same for one batch in each slot, from the start of the first to the end of the last."""
        return self._time(self.in_flight, size, repeats)

    def _time(self, batches: Sequence[InFlight], size: int, repeats: int) -> float:
        device = self.device
        device.activate()
        for batch in batches:
            self._empty(batch)
        all_recorded = [self.recorded(batch, size) for batch in batches]
        first, *others = (recorded.stream for recorded in all_recorded)
        start, end = (device.create_event(timing=True) for _ in range(2))
        ended = device.create_event()
        best = float("inf")
        for _ in range(4):
            with self.lease():
                device.record(start, first)
                for other in others:
                    device.wait_for(other, start)
                for _ in range(repeats):
                    for recorded in all_recorded:
                        device.launch_graph(recorded.graph, recorded.stream)
                for other in others:
                    device.record(ended, other)
                    device.wait_for(first, ended)
                device.record(end, first)
                device.synchronize(end)
            best = min(best, device.milliseconds(start, end) / repeats)
        return best

    def _empty(self, batch: InFlight) -> None:
        """Give an idle batch input without moves, at every batch size."""
        batch.host_input.array[:] = 0
        if batch.device_input:
            self.device.write(batch.device_input, batch.host_input.array)

    def profile(self, size: int, repeats: int = 20) -> list[tuple[Launch | LibraryStep, float]]:
        """Return each launch of a bucket with its milliseconds, run alone `repeats` times back to back."""
        self.device.activate()
        device = self.device
        batch = self.in_flight[0]
        self._empty(batch)
        addresses = self._exchange_addresses(batch, size)
        start, end = (device.create_event(timing=True) for _ in range(2))
        stream = device.create_stream()
        times: list[tuple[Launch | LibraryStep, float]] = []
        for step in self._programs[size].steps:
            if isinstance(step, Branch):
                continue
            device.begin_capture(stream)
            for _ in range(repeats):
                self.device_stream.recorder.queue(step, addresses, stream, overlap=False)
            graph = device.end_capture(stream)
            for _ in range(2):  # the first one warms up
                device.record(start, stream)
                device.launch_graph(graph, stream)
                device.record(end, stream)
                device.synchronize(end)
            times.append((step, device.milliseconds(start, end) / repeats))
        return times

    def close(self) -> None:
        """Free all memory. Idempotent."""
        self._memory_of_streams.free()
        self._memory.free()

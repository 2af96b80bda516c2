"""Runs a Plan on a Device: weights uploaded once, one captured graph per batch size and slot.

Each batch in flight has a slot (in_flight.py). All slots compute in one stream on one workspace,
so that batches do not slow each other down; the copies of one batch run beside the computation of another.
Small batches are not copied at all: the kernels read and write the page-locked memory directly, as they
always do on a device that shares the CPU's memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.blas.library import Library, LibraryProduct
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device, DeviceError, HostBuffer
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import Branch, Buffer, Launch, LibraryStep, Program, Space, Table
from evaluator.gpu.plan.weights import round_up
from evaluator.gpu.run.in_flight import DIRECT_POSITIONS, Exchange, Layout, Slot
from evaluator.gpu.run.launching import multiply, queue
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger(__name__)

_ALIGNMENT = 256


class Executor:
    """One network on one device. `evaluate` may be called from as many threads at once as there are slots."""

    def __init__(
        self,
        device: Device,
        compiler: Compiler,
        plan: Plan,
        buckets: tuple[int, ...],
        *,
        libraries: Sequence[Library] = (),
        slots: int = 2,
        planned: Callable[[], None] = lambda: None,
    ) -> None:
        """buckets: ascending batch sizes; a batch is padded to the next one. planned: called when the weights
        are packed, for which all of the CPU was needed. Raises DeviceError (among them OutOfDeviceMemory,
        with nothing left allocated) and PlanError."""
        self.device = device
        self.buckets = buckets
        self._libraries = {library.name: library for library in libraries}
        self._programs = {size: plan.program(size) for size in buckets}
        self.alternatives: dict[int, tuple[Program, ...]] = {}
        """The programs of each batch size that has more than one."""
        for size in buckets:
            persistent = plan.persistent_program(size)
            if persistent is not None:
                self.alternatives[size] = (self._programs[size], persistent)
        planned()
        self._allocated: list[int] = []
        self._host: list[HostBuffer] = []
        self._capturing = threading.Lock()
        self._direct = buckets[-1] if device.info.integrated else DIRECT_POSITIONS
        try:
            self._kernels = compiler.load(
                [key for program in self._all_programs() for key in program.kernels()]
            )
            self._weights = self._upload(plan.weights)
            self._work = self._allocate_work()
            self._tables = self._write_tables()
            used = {
                step.library
                for program in self._all_programs()
                for step in program.steps
                if isinstance(step, LibraryStep)
            }
            space = max((self._libraries[name].workspace for name in used), default=0)
            self._workspaces = [self._allocate(space) for _ in range(2)]  # main branch, second branch
            self.compute = device.create_stream()
            self.exchange = Exchange(device.calls(), self.compute, self._direct)
            self._aside = device.create_stream()
            # For captures; a graph keeps nothing of the events but the order that they stood for.
            self._recorder = device.create_stream()
            self._forked, self._joined = device.create_event(), device.create_event()
            self.slots = [self._create_slot(Layout(buckets[-1])) for _ in range(slots)]
            self._warm_up()
        except BaseException:
            self.close()
            raise
        self._free = list(self.slots)
        self._freed = threading.Condition()

    # -- evaluating ------------------------------------------------------------------------------------

    def evaluate(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        """A batch that comes in parts. Raises DeviceError, among them NotFiniteOutput; ValueError for more
        moves than max_moves."""
        with self._freed:
            self._freed.wait_for(lambda: bool(self._free))
            slot = self._free.pop()
        try:
            size = self.bucket(sum(map(len, parts)), sum(len(part.moves) for part in parts))
            return self.exchange.run(slot, Layout(size), self._graph(slot, size), parts)
        finally:
            with self._freed:
                self._free.append(slot)
                self._freed.notify()

    def bucket(self, positions: int, moves: int) -> int:
        """The batch size that runs so many. Raises ValueError if there is none."""
        for size in self.buckets:
            if positions <= size and moves <= Layout(size).max_moves:
                return size
        raise ValueError(
            f"{positions} positions with {moves} moves are more than a batch of {self.buckets[-1]} holds"
        )

    def _all_programs(self) -> list[Program]:
        others = [program for programs in self.alternatives.values() for program in programs[1:]]
        return [*self._programs.values(), *others]

    def select(self, size: int, program: Program) -> None:
        """Run a batch size by one of its alternatives from now on. Nothing may be in flight."""
        self._programs[size] = program
        for slot in self.slots:
            slot.graphs.pop(size, None)

    def selected(self, size: int) -> Program:
        """What a batch size runs."""
        return self._programs[size]

    def time(self, size: int, repeats: int = 10) -> float:
        """Milliseconds of the computation alone for a bucket, back to back, the best of three runs."""
        self.device.activate()
        slot = self._cleared_slot()
        graph = self._graph(slot, size)
        start, end = (self.device.create_event(timing=True) for _ in range(2))
        best = float("inf")
        for _ in range(4):
            self.device.record(start, self.compute)
            for _ in range(repeats):
                self.device.launch_graph(graph, self.compute)
            self.device.record(end, self.compute)
            self.device.synchronize(end)
            best = min(best, self.device.milliseconds(start, end) / repeats)
        return best

    def _cleared_slot(self) -> Slot:
        """A slot whose input is a batch without moves at every bucket. Nothing may be in flight."""
        slot = self.slots[0]
        slot.host_input.array[:] = 0
        if slot.device_input:
            self.device.write(slot.device_input, slot.host_input.array)
        return slot

    def profile(self, size: int, repeats: int = 20) -> list[tuple[Launch | LibraryStep, float]]:
        """Every launch of a bucket with its milliseconds, run alone `repeats` times back to back."""
        self.device.activate()
        device = self.device
        addresses = self._exchange_addresses(self._cleared_slot(), size)
        start, end = (device.create_event(timing=True) for _ in range(2))
        stream = device.create_stream()
        times: list[tuple[Launch | LibraryStep, float]] = []
        for step in self._programs[size].steps:
            if isinstance(step, Branch):
                continue
            device.begin_capture(stream)
            for _ in range(repeats):
                self._queue(step, addresses, stream, overlap=False)
            graph = device.end_capture(stream)
            for _ in range(2):  # the first warms up
                device.record(start, stream)
                device.launch_graph(graph, stream)
                device.record(end, stream)
                device.synchronize(end)
            times.append((step, device.milliseconds(start, end) / repeats))
        return times

    # -- graphs ----------------------------------------------------------------------------------------

    def _graph(self, slot: Slot, size: int) -> Any:
        graph = slot.graphs.get(size)
        if graph is None:
            with self._capturing:
                graph = slot.graphs[size] = self._capture(slot, size)
        return graph

    def _warm_up(self) -> None:
        """Run every library's algorithm once: the first call loads its code, which no capture survives."""
        known: set[tuple[str, LibraryProduct, bytes]] = set()
        for size, program in self._programs.items():
            exchange = self._exchange_addresses(self.slots[0], size)
            for step in program.steps:
                if isinstance(step, LibraryStep) and self._libraries[step.library].warms_up:
                    key = (step.library, step.product, step.algorithm)
                    if key not in known:
                        known.add(key)
                        self._queue(step, exchange, self.compute, overlap=False)
        if known:
            done = self.device.create_event()
            self.device.record(done, self.compute)
            self.device.synchronize(done)

    def _capture(self, slot: Slot, size: int) -> Any:
        device, stream = self.device, self._recorder
        device.activate()
        device.begin_capture(stream)
        try:
            self._record(slot, size)
        except BaseException:
            device.abandon_capture(stream)
            raise
        return device.end_capture(stream)

    def _record(self, slot: Slot, size: int) -> None:
        addresses = self._exchange_addresses(slot, size)
        device, stream, forked, joined = self.device, self._recorder, self._forked, self._joined
        fresh = {stream: True, self._aside: True}  # nothing queued yet that a kernel could overlap with
        for step in self._programs[size].steps:
            match step:
                case Branch.FORK:
                    device.record(forked, stream)
                    device.wait_for(self._aside, forked)
                    fresh[self._aside] = True
                case Branch.JOIN:
                    device.record(joined, self._aside)
                    device.wait_for(stream, joined)
                    fresh[stream] = True
                case Launch() | LibraryStep():
                    queue = self._aside if step.aside else stream
                    self._queue(step, addresses, queue, overlap=not fresh[queue])
                    # What follows a launch that fills the chip waits until it has ended.
                    fresh[queue] = isinstance(step, Launch) and step.cooperative

    def _queue(
        self, step: Launch | LibraryStep, exchange: dict[str, int], stream: Any, *, overlap: bool
    ) -> None:
        address = partial(self._address, exchange)
        if isinstance(step, LibraryStep):
            library, workspace = self._libraries[step.library], self._workspaces[step.aside]
            multiply(library, step, address, workspace, stream)
            return
        kernel = self._kernels[step.kernel, step.shared_bytes]
        queue(
            self.device,
            kernel,
            step,
            address,
            stream,
            overlap=overlap,
            tables=self._tables,
        )

    def _address(self, exchange: dict[str, int], buffer: Buffer) -> int:
        match buffer.space:
            case Space.WEIGHTS:
                return self._weights[buffer.name]
            case Space.WORK:
                return self._work[buffer.name]
            case Space.EXCHANGE:
                return exchange[buffer.name]

    def _exchange_addresses(self, slot: Slot, size: int) -> dict[str, int]:
        layout = Layout(size)
        direct = size <= self._direct
        inputs = slot.host_input.address if direct else slot.device_input
        outputs = slot.host_output.address if direct else slot.device_output
        return {
            "positions": inputs,
            "move_offsets": inputs + layout.offsets_at,
            "moves": inputs + layout.moves_at,
            "wdl": outputs,
            "moves_left": outputs + layout.moves_left_at,
            "logits": outputs + layout.logits_at,
        }

    # -- memory ----------------------------------------------------------------------------------------

    def _allocate(self, size: int) -> int:
        address = self.device.allocate(size)
        self._allocated.append(address)
        return address

    def _allocate_host(self, size: int, *, cached: bool = False) -> HostBuffer:
        buffer = self.device.allocate_host(size, cached=cached)
        self._host.append(buffer)
        return buffer

    def _upload(self, weights: dict[str, NDArray[Any]]) -> dict[str, int]:
        """One block holds all weights; an array that several layers share is there once. Where the device
        shares the CPU's memory, it reads them where they are put together."""
        addresses: dict[int, int] = {}
        size = 0
        for array in weights.values():
            if id(array) not in addresses:
                addresses[id(array)] = size
                size += round_up(array.nbytes, _ALIGNMENT)
        if not self.device.info.integrated:
            block = self._allocate(size)
            for array in {id(each): each for each in weights.values()}.values():
                self.device.write(block + addresses[id(array)], array)
        else:
            buffer = self._allocate_host(size, cached=True)
            block = buffer.address
            for array in weights.values():
                at = addresses[id(array)]
                buffer.array[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
        return {name: block + addresses[id(array)] for name, array in weights.items()}

    def _allocate_work(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for program in self._all_programs():
            for name, size in program.work.items():
                sizes[name] = max(sizes.get(name, 0), size)
        return {name: self._allocate(size) for name, size in sizes.items()}

    def _write_tables(self) -> dict[str, int]:
        tables: dict[str, int] = {}
        for program in self._all_programs():
            launches = (step for step in program.steps if isinstance(step, Launch))
            for table in (each for step in launches for each in step.arguments if isinstance(each, Table)):
                words = np.zeros(len(table.words), np.uint64)
                for word, value in zip(words.reshape(-1, 1), table.words, strict=True):
                    match value:
                        case Buffer():
                            word[0] = self._address({}, value)
                        case float():
                            word.view(np.float32)[0] = value
                        case int():
                            word.view(np.int64)[0] = value
                tables[table.name] = self._allocate(words.nbytes)
                self.device.write(tables[table.name], words)
        return tables

    def _create_slot(self, layout: Layout) -> Slot:
        device = self.device
        host_input = self._allocate_host(layout.input_bytes)
        host_output = self._allocate_host(layout.output_bytes)
        host_input.array[:] = 0
        copied = layout.positions > self._direct
        device_input = self._allocate(layout.input_bytes) if copied else 0
        if copied:
            device.write(device_input, host_input.array)
        return Slot(
            device.create_stream(),
            device.create_event(),
            device.create_event(),
            device.create_event(),
            host_input,
            host_output,
            device_input,
            self._allocate(layout.output_bytes) if copied else 0,
        )

    def close(self) -> None:
        """Free all memory. Idempotent."""
        allocated, self._allocated = self._allocated, []
        host, self._host = self._host, []
        try:
            self.device.activate()
            for address in allocated:
                self.device.free(address)
            for buffer in host:
                self.device.free_host(buffer)
        except DeviceError as error:
            # After a kernel has failed every call does; the driver frees the rest with the context.
            log.warning("%s: %s while freeing memory", self.device.info.name, error)

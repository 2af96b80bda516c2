# SPDX-License-Identifier: GPL-3.0-or-later
"""Records programs as graphs of a device, by queueing their steps in capturing streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from evaluator.backends.gpu.blas.library import Library, LibraryProduct
from evaluator.backends.gpu.driver.compiler import KernelKey
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.plan.program import Branch, Launch, LibraryStep, Program
from evaluator.backends.gpu.run.launching import multiply, queue
from evaluator.backends.gpu.run.memory import Buffers


class Recorder:
    """Captures programs. Used by one thread at a time.

    forked, joined: events between the branches of work. A graph keeps only the order that they define.
    """

    def __init__(
        self,
        device: Gpu,
        kernels: Mapping[tuple[KernelKey, int], Any],
        buffers: Buffers,
        libraries: Mapping[str, Library],
    ) -> None:
        """kernels: loaded, by key and dynamic shared memory. libraries: by name. Raises DeviceError."""
        self._device = device
        self._kernels = kernels
        self._buffers = buffers
        self._libraries = libraries
        self._aside = device.create_stream()
        self._main = device.create_stream()
        self.forked, self.joined = device.create_event(), device.create_event()

    def capture(self, program: Program, exchange: Mapping[str, int]) -> Any:
        """Return a program as a graph. exchange: addresses of the batch's own inputs and outputs. Raises
        DeviceError."""
        device, stream = self._device, self._main
        device.activate()
        device.begin_capture(stream)
        try:
            self._record(program, exchange)
        except BaseException:
            device.abandon_capture(stream)
            raise
        return device.end_capture(stream)

    def _record(self, program: Program, exchange: Mapping[str, int]) -> None:
        device, main, aside = self._device, self._main, self._aside
        fresh = {main: True, aside: True}  # no queued kernel to overlap with yet
        for step in program.steps:
            match step:
                case Branch.FORK:
                    device.record(self.forked, main)
                    device.wait_for(aside, self.forked)
                    fresh[aside] = True
                case Branch.JOIN:
                    device.record(self.joined, aside)
                    device.wait_for(main, self.joined)
                    fresh[main] = True
                case Launch() | LibraryStep():
                    stream = aside if step.aside else main
                    self.queue(step, exchange, stream, overlap=not fresh[stream])
                    # The step after a launch that fills the chip must wait for its end.
                    fresh[stream] = isinstance(step, Launch) and step.cooperative

    def queue(
        self, step: Launch | LibraryStep, exchange: Mapping[str, int], stream: Any, *, overlap: bool
    ) -> None:
        """Queue one step. overlap: as in Device.launch."""
        address = partial(self._buffers.address, exchange=exchange)
        if isinstance(step, LibraryStep):
            workspace = self._buffers.workspaces[step.aside]
            multiply(self._libraries[step.library], step, address, workspace, stream)
            return
        kernel = self._kernels[step.kernel, step.shared_bytes]
        queue(self._device, kernel, step, address, stream, overlap=overlap, tables=self._buffers.tables)

    def warm_up(self, programs: Iterable[tuple[Program, Mapping[str, int]]], stream: Any) -> None:
        """Run every library algorithm once: the first call loads its code, which is impossible during a
        capture. programs: each with the addresses of its batch's inputs and outputs."""
        with self._device.loading():
            self._run_libraries(programs, stream)

    def _run_libraries(self, programs: Iterable[tuple[Program, Mapping[str, int]]], stream: Any) -> None:
        known: set[tuple[str, LibraryProduct, bytes]] = set()
        for program, exchange in programs:
            for step in program.steps:
                if isinstance(step, LibraryStep) and self._libraries[step.library].warms_up:
                    key = (step.library, step.product, step.algorithm)
                    if key not in known:
                        known.add(key)
                        self.queue(step, exchange, stream, overlap=False)
        if known:
            done = self._device.create_event()
            self._device.record(done, stream)
            self._device.synchronize(done)

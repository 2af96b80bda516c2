# SPDX-License-Identifier: GPL-3.0-or-later
"""An executor's allocations on its device, and the addresses of its programs' buffers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.device import DeviceError, Gpu, HostBuffer
from evaluator.backends.gpu.plan.program import Buffer, Launch, Program, Space, WordTable
from evaluator.backends.gpu.plan.weights import round_up

log = logging.getLogger(__name__)

_ALIGNMENT = 256


class Memory:
    """Device memory and page-locked memory that are freed together."""

    def __init__(self, device: Gpu) -> None:
        self.device = device
        self._allocated: list[int] = []
        self._host: list[HostBuffer] = []

    def allocate(self, size: int) -> int:
        """Return the address of newly allocated device memory. Raises OutOfDeviceMemory."""
        address = self.device.allocate(size)
        self._allocated.append(address)
        return address

    def allocate_host(self, size: int, *, cached: bool = False) -> HostBuffer:
        """Return page-locked memory, as Device.allocate_host does. Raises OutOfDeviceMemory."""
        buffer = self.device.allocate_host(size, cached=cached)
        self._host.append(buffer)
        return buffer

    def free(self) -> None:
        """Free everything. Idempotent."""
        allocated, self._allocated = self._allocated, []
        host, self._host = self._host, []
        try:
            self.device.activate()
            for address in allocated:
                self.device.free(address)
            for buffer in host:
                self.device.free_host(buffer)
        except DeviceError as error:
            # After a kernel has failed, every call fails; the driver frees the rest with the context.
            log.warning("%s: %s while freeing memory", self.device.info.name, error)


def upload(memory: Memory, weights: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Upload the arrays in one block and return each address by name. An array shared by several layers is
    uploaded once. A small device that shares the CPU's memory reads them in place. Raises DeviceError."""
    device = memory.device
    addresses: dict[int, int] = {}
    size = 0
    for array in weights.values():
        if id(array) not in addresses:
            addresses[id(array)] = size
            size += round_up(array.nbytes, _ALIGNMENT)
    if not device.info.is_small_apu:
        block = memory.allocate(size)
        for array in {id(each): each for each in weights.values()}.values():
            device.write(block + addresses[id(array)], array)
    else:
        buffer = memory.allocate_host(size, cached=True)
        block = buffer.address
        for array in weights.values():
            at = addresses[id(array)]
            buffer.array[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
    return {name: block + addresses[id(array)] for name, array in weights.items()}


class Buffers:
    """Device addresses of the buffers of some programs.

    weights: address of each array, by name. tables: address of each Table, by name. workspaces: for the
    libraries, in the main branch of work and in the second one.
    """

    def __init__(
        self,
        memory: Memory,
        programs: Sequence[Program],
        weights: Mapping[str, int],
        workspace: int,
    ) -> None:
        """workspace: bytes for a library. Raises DeviceError."""
        self._memory = memory
        self.weights = weights
        self._work = self._allocate_work(programs)
        self.tables: Mapping[str, int] = self._write_tables(programs)
        self.workspaces = [memory.allocate(workspace) for _ in range(2)]

    def address(self, buffer: Buffer, exchange: Mapping[str, int]) -> int:
        """Return a buffer's address. exchange: addresses of the batch's own inputs and outputs."""
        match buffer.space:
            case Space.WEIGHTS:
                return self.weights[buffer.name]
            case Space.WORK:
                return self._work[buffer.name]
            case Space.EXCHANGE:
                return exchange[buffer.name]

    def _allocate_work(self, programs: Iterable[Program]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for program in programs:
            for name, size in program.work.items():
                sizes[name] = max(sizes.get(name, 0), size)
        return {name: self._memory.allocate(size) for name, size in sizes.items()}

    def _write_tables(self, programs: Iterable[Program]) -> dict[str, int]:
        addresses: dict[str, int] = {}
        for program in programs:
            launches = (step for step in program.steps if isinstance(step, Launch))
            for table in (
                each for step in launches for each in step.arguments if isinstance(each, WordTable)
            ):
                words = self._words(table)
                addresses[table.name] = self._memory.allocate(words.nbytes)
                self._memory.device.write(addresses[table.name], words)
        return addresses

    def _words(self, table: WordTable) -> NDArray[np.uint64]:
        words = np.zeros(len(table.words), np.uint64)
        for word, value in zip(words.reshape(-1, 1), table.words, strict=True):
            match value:
                case Buffer():
                    word[0] = self.address(value, {})
                case float():
                    word.view(np.float32)[0] = value
                case int():
                    word.view(np.int64)[0] = value
        return words

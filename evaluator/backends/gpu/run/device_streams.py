# SPDX-License-Identifier: GPL-3.0-or-later
"""Device streams, in which batches of one network compute concurrently on a device.

A small batch leaves most of a large device idle while its kernels start one after another. So two concurrent
batches end sooner than two in sequence. Each needs its own work buffers. Larger batches would only delay each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from evaluator.backends.gpu.blas.library import Library
from evaluator.backends.gpu.driver.compiler import KernelKey
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.plan.program import Program
from evaluator.backends.gpu.run.memory import Buffers, Memory, upload
from evaluator.backends.gpu.run.recording import Recorder

MOST_POSITIONS = 128
"""Maximum positions of batches that may compute concurrently."""

FEWEST_UNITS = 40
"""Minimum compute units of a device for device streams: a small batch fills a smaller device."""

MOST_MS = 1.0
"""Maximum time of such a batch. A slower one fills the device, too, and measuring it would delay the
start."""

WORTHWHILE = 0.9
"""Maximum time of concurrent batches, relative to the same in sequence, that justifies streams."""


@dataclass(frozen=True, slots=True)
class DeviceStream:
    """A stream whose batches compute in sequence, their work buffers, and the recorder of programs for it."""

    stream: Any
    buffers: Buffers
    recorder: Recorder


@dataclass(frozen=True, slots=True)
class DeviceStreams:
    """Common parts of a network's device streams. kernels, libraries: as in Recorder. weights: device address
    of each array, by name. written: arrays that kernels write; each device stream has a copy. workspace:
    bytes for a library."""

    device: Gpu
    kernels: Mapping[tuple[KernelKey, int], Any]
    libraries: Mapping[str, Library]
    weights: Mapping[str, int]
    written: Mapping[str, NDArray[Any]]
    workspace: int

    def open(self, memory: Memory, programs: Sequence[Program]) -> DeviceStream:
        """Open a device stream for programs. Raises DeviceError."""
        own = upload(memory, self.written) if self.written else {}
        buffers = Buffers(memory, programs, {**self.weights, **own}, self.workspace)
        recorder = Recorder(self.device, self.kernels, buffers, self.libraries)
        return DeviceStream(self.device.create_stream(), buffers, recorder)

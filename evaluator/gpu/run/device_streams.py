# SPDX-License-Identifier: GPL-3.0-or-later
"""Device streams: batches of one network compute in them concurrently on a device.

A small batch leaves most of a large device idle while its kernels start one after another, so two concurrent
ones end sooner than two in sequence. Each then needs work buffers of its own. Larger
ones would only delay each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from evaluator.gpu.blas.library import Library
from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.device import Device
from evaluator.gpu.plan.program import Program
from evaluator.gpu.run.memory import Buffers, Memory, upload
from evaluator.gpu.run.recording import Recorder

MOST_POSITIONS = 128
"""Of a batch that may compute beside another."""

FEWEST_UNITS = 40
"""Compute units of a device on which that is tried: a small batch fills a device with fewer."""

MOST_MS = 1.0
"""A batch that takes longer fills the device, too, and to measure it would delay the start."""

WORTHWHILE = 0.9
"""Concurrent batches are worth their streams if they take at most this part of their time in sequence."""


@dataclass(frozen=True, slots=True)
class DeviceStream:
    """A stream whose batches compute one after the other, the buffers that they do it in, and who records
    programs for it."""

    stream: Any
    buffers: Buffers
    recorder: Recorder


@dataclass(frozen=True, slots=True)
class DeviceStreams:
    """What all device streams of a network have in common. kernels, libraries: as of Recorder. weights: where
    each array lies on the device, by name. written: those of them that kernels write to, of which each device
    stream has a copy. workspace: bytes that a library may want."""

    device: Device
    kernels: Mapping[tuple[KernelKey, int], Any]
    libraries: Mapping[str, Library]
    weights: Mapping[str, int]
    written: Mapping[str, NDArray[Any]]
    workspace: int

    def open(self, memory: Memory, programs: Sequence[Program]) -> DeviceStream:
        """A device stream for these programs. Raises DeviceError."""
        own = upload(memory, self.written) if self.written else {}
        buffers = Buffers(memory, programs, {**self.weights, **own}, self.workspace)
        recorder = Recorder(self.device, self.kernels, buffers, self.libraries)
        return DeviceStream(self.device.create_stream(), buffers, recorder)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between the gpu backend and a GPU's driver.

A `Gpu` allocates, copies, compiles, launches and waits. `amd.py` and `nvidia.py` implement it, with the
same methods in the same order. Addresses are plain integers. Streams, events, kernels and graphs are opaque
handles of the driver. Several threads may use a device after each has called `activate`. No method holds a
lock, except AMD's while it loads code, and blocking driver calls release the GIL.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.common.buffer_lease import Call as Call
from evaluator.backends.gpu.driver.target import Precision, Target
from protocol.common.printing import ReportedError

Argument: TypeAlias = Any
"""A kernel's argument: a ctypes value (c_uint64 for addresses)."""


class DeviceError(ReportedError):
    """A driver call failed. The message contains the call and the driver's error."""


class OutOfDeviceMemory(DeviceError):  # noqa: N818 - named for what happened
    """The device has not enough free memory."""


class NotFiniteOutput(DeviceError):  # noqa: N818 - named for what happened
    """A result is infinite or NaN."""


class CompilationError(DeviceError):
    """A kernel did not compile. The message ends with the compiler's log."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Properties of a device that are known before it is opened.

    vendor: "nvidia" or "amd". name: from the driver. memory: bytes; on an APU those
    reserved for the GPU. driver: version, in words.
    multiprocessors: as counted by the driver. integrated: shares the CPU's memory. cooperative: can run
    kernels whose blocks wait for each other. pci: address, as 0000:03:00.0, whose last digit numbers the
    partitions of a card; empty if unknown. clock_mhz: maximum clock; 0 if unknown.
    """

    vendor: str
    index: int
    name: str
    target: Target
    memory: int
    multiprocessors: int
    driver: str
    integrated: bool
    cooperative: bool = False
    pci: str = ""
    clock_mhz: int = 0

    @property
    def tflops(self) -> float:
        """Peak fp16 rate in TFLOP/s, estimated from compute units and clock."""
        return self.compute_units * self.target.flops_per_clock * (self.clock_mhz or _USUAL_MHZ) * 1e-6

    @property
    def small(self) -> bool:
        """True if a CPU may be faster, which only a measurement can decide."""
        return self.tflops < _FEW_TFLOPS or (self.integrated and self.compute_units < _FEW_UNITS)

    @property
    def compute_units(self) -> int:
        """Compute units (AMD) or streaming multiprocessors (NVIDIA).

        HIP counts workgroup processors on RDNA (gfx10 and later), with two compute units each.
        """
        is_rdna = self.target.name.startswith("gfx1")
        return 2 * self.multiprocessors if is_rdna else self.multiprocessors

    @property
    def is_small_apu(self) -> bool:
        """True if it shares the CPU's memory and is smaller than an accelerator such as MI300A."""
        is_large = self.memory >= LARGE_APU_BYTES and self.compute_units >= LARGE_APU_UNITS
        return self.integrated and not is_large


_USUAL_MHZ = 2000
"""Assumed clock if the driver reports none."""

_FEW_UNITS, _FEW_TFLOPS = 20, 8.0
"""Radeon 780M has 12 units, gfx1036 (Ryzen 7000) 2. A CPU with 16 cores reaches about 2 TFLOP/s."""

LARGE_APU_BYTES = 64 << 30
LARGE_APU_UNITS = 64
"""An integrated GPU with at least this memory and this many units is treated like a discrete one. MI300A has
128 GB and 228 units, Strix Halo up to 128 GB and 40 units, GB10 128 GB and 48 multiprocessors."""


@dataclass(frozen=True, slots=True)
class HostBuffer:
    """Page-locked host memory that the device can address. array: uint8. address: on the device."""

    array: NDArray[np.uint8]
    host_address: int
    address: int


@dataclass(frozen=True, slots=True)
class Box:
    """A box that NVIDIA's tensor memory accelerator loads at once, with the 128-byte swizzle and zeros
    outside the array.

    sizes: of the array's dimensions, up to five, the first one contiguous. strides: in bytes, of all
    dimensions but the first. shape: of the box, in elements. precision: of the elements, fp16 or bf16.
    """

    precision: Precision
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]


NOT_READY = 600
"""Both vendors' status of an event that has not happened."""


class Calls(ABC):
    """The calls that run a captured batch, made without the GIL by evaluator._core.

    Each method returns a Call that does the same as the method of `Gpu` of that name. library: the
    driver's. prefix: of its functions.
    """

    prefix: str

    def __init__(self, library: ctypes.CDLL) -> None:
        self._address = cache(partial(function_address, library))

    def call(self, name: str, *arguments: Any) -> Call:
        """Return a call of a driver function. Raises DeviceError if the function does not exist."""
        return Call(name, self._address(name), tuple(map(int, arguments)))

    @abstractmethod
    def activate(self) -> Call: ...

    @abstractmethod
    def upload(self, address: int, host_address: int, size: int, stream: Any) -> Call: ...

    @abstractmethod
    def download(self, host_address: int, address: int, size: int, stream: Any) -> Call: ...

    def record(self, event: Any, stream: Any) -> Call:
        return self.call(f"{self.prefix}EventRecord", event, stream)

    def wait_for(self, stream: Any, event: Any) -> Call:
        return self.call(f"{self.prefix}StreamWaitEvent", stream, event, 0)

    def synchronize(self, event: Any) -> Call:
        return self.call(f"{self.prefix}EventSynchronize", event)

    def query(self, event: Any) -> Call:
        """Return a call that tests an event: 0 if it has happened, else NOT_READY."""
        return self.call(f"{self.prefix}EventQuery", event)

    def launch_graph(self, graph: Any, stream: Any) -> Call:
        return self.call(f"{self.prefix}GraphLaunch", graph, stream)

    @abstractmethod
    def raise_failure(self, call: Call, status: int) -> NoReturn:
        """Raise DeviceError for the status of a call."""


def function_address(library: ctypes.CDLL, name: str) -> int:
    """Return the address of a library's function. Raises DeviceError."""
    try:
        return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
    except AttributeError:
        raise DeviceError(f"{library._name} has no function {name}: update the driver") from None


class Gpu(ABC):
    """A GPU. Close it once; all handles become invalid then."""

    info: DeviceInfo

    @abstractmethod
    def activate(self) -> None:
        """Make this the calling thread's device."""

    @abstractmethod
    def calls(self) -> Calls:
        """Return this device's calls."""

    # -- memory ----------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, size: int) -> int:
        """Allocate device memory, aligned to 256 bytes. Raises OutOfDeviceMemory."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Free memory of `allocate`."""

    @abstractmethod
    def allocate_host(self, size: int, *, cached: bool = False) -> HostBuffer:
        """Allocate page-locked host memory. cached: the device may cache it, so that only later launches see
        later writes. Raises OutOfDeviceMemory."""

    @abstractmethod
    def free_host(self, buffer: HostBuffer) -> None:
        """Free memory of `allocate_host`; its array becomes invalid."""

    @abstractmethod
    def free_memory(self) -> int:
        """Return the bytes that could be allocated now."""

    def used_memory(self) -> int:
        """Return the bytes in use by all programs; 0 if an APU's driver reports more free bytes than it
        reserves for the GPU."""
        return max(0, self.info.memory - self.free_memory())

    @abstractmethod
    def write(self, address: int, array: NDArray[Any]) -> None:
        """Copy a C-contiguous array to the device, and wait for the end."""

    @abstractmethod
    def read(self, address: int, array: NDArray[Any]) -> None:
        """Copy from the device into a C-contiguous array, and wait for the end."""

    @abstractmethod
    def upload(self, address: int, host_address: int, size: int, stream: Any) -> None:
        """Queue a copy from page-locked memory in a stream."""

    @abstractmethod
    def download(self, host_address: int, address: int, size: int, stream: Any) -> None:
        """Queue a copy to page-locked memory in a stream."""

    # -- kernels ---------------------------------------------------------------------------------------

    @abstractmethod
    def compiler_version(self) -> str:
        """Return what the compiled code depends on in addition to source, target and options."""

    @abstractmethod
    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        """Compile a source for this device's target. options: of the form -DNAME=VALUE. Raises
        CompilationError."""

    @abstractmethod
    def load(self, code: bytes, name: str, shared_bytes: int) -> Any:
        """Load the kernel `name` of some code. shared_bytes: limit of its dynamic shared memory."""

    def loading(self) -> AbstractContextManager[None]:
        """Return the context in which code may be loaded other than by `load`, as by a library's first
        call."""
        return nullcontext()

    @abstractmethod
    def launch(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[Argument],
        stream: Any,
        *,
        overlap: bool = False,
        cooperative: bool = False,
    ) -> None:
        """Queue a kernel. overlap: it calls `wait_for_previous_kernel` itself, and may start before the
        kernel before it has ended, if the hardware supports it. cooperative: its blocks wait for each other,
        so all must be resident at once; only if `info.cooperative`."""

    def resident_blocks(self, kernel: Any, threads: int, shared_bytes: int, cluster: int) -> int:
        """Return how many blocks of a kernel, in clusters of `cluster`, run at once on an idle device."""
        raise DeviceError(f"{self.info.name} has no clusters of blocks")

    def tensor_map(self, address: int, box: Box) -> Argument:
        """Return a kernel argument with which the TMA (copy engine) loads boxes of the array at an
        address."""
        raise DeviceError(f"{self.info.name} has no tensor maps")

    # -- order -----------------------------------------------------------------------------------------

    @abstractmethod
    def create_stream(self) -> Any:
        """Create a queue of work that is independent of others."""

    @abstractmethod
    def create_event(self, *, timing: bool = False) -> Any:
        """Create an event, a point in a stream. timing: for use with `milliseconds`."""

    @abstractmethod
    def record(self, event: Any, stream: Any) -> None:
        """Make the event mark everything queued in the stream so far."""

    @abstractmethod
    def wait_for(self, stream: Any, event: Any) -> None:
        """Make work queued in the stream from now on wait for the event."""

    @abstractmethod
    def synchronize(self, event: Any) -> None:
        """Wait, with the GIL released, until the event has happened. Raises DeviceError for any failure
        before it."""

    @abstractmethod
    def milliseconds(self, start: Any, end: Any) -> float:
        """Return the time between two events that have happened."""

    # -- graphs ----------------------------------------------------------------------------------------

    @abstractmethod
    def begin_capture(self, stream: Any) -> None:
        """Record the work queued in the stream from now on, instead of running it."""

    @abstractmethod
    def end_capture(self, stream: Any) -> Any:
        """Return the recorded work as a graph that can be launched."""

    @abstractmethod
    def abandon_capture(self, stream: Any) -> None:
        """End a capture in which a call has failed. Never raises."""

    @abstractmethod
    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Queue the recorded work of a graph."""

    @abstractmethod
    def release(self, handle: Any) -> None:
        """Destroy a stream, an event or a graph before `close` does."""

    @abstractmethod
    def close(self) -> None:
        """Release the device. Idempotent."""

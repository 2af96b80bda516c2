# SPDX-License-Identifier: GPL-3.0-or-later
"""The small interface between everything else here and a GPU's driver.

A `Device` allocates, copies, compiles, launches and waits; `amd.py` and `nvidia.py` implement it, as siblings
with the same methods in the same order. Addresses are plain integers. Streams, events, kernels and graphs are
the driver's own handles, opaque here. A device may be used from several threads once each has called
`activate`; no method holds a lock, and the driver calls that wait release the GIL.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.driver.target import Precision, Target

Argument: TypeAlias = Any
"""A kernel's argument: a ctypes value (c_uint64 for addresses)."""


class DeviceError(Exception):
    """A driver call failed. The message names the call and what the driver said."""


class OutOfDeviceMemory(DeviceError):  # noqa: N818 - named for what happened
    """The device has not enough memory left."""


class NotFiniteOutput(DeviceError):  # noqa: N818 - named for what happened
    """What was computed is infinite or not a number."""


class CompilationError(DeviceError):
    """A kernel did not compile; the message ends with the compiler's log."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What is known of a device before it is used.

    vendor: "nvidia" or "amd". name: as the driver gives it. memory: bytes. driver: its version, in words.
    multiprocessors: as the driver counts them. integrated: it shares the CPU's memory. cooperative: it can
    run kernels whose blocks wait for each other. pci: its address, as 0000:03:00.0; empty if unknown.
    clock_mhz: the highest clock; 0 if unknown.
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
        """Whether a CPU may be faster. Only a measurement can decide."""
        return self.tflops < _FEW_TFLOPS or (self.integrated and self.compute_units < _FEW_UNITS)

    @property
    def compute_units(self) -> int:
        """Compute units (AMD) or streaming multiprocessors (NVIDIA).

        HIP counts workgroup processors on RDNA (gfx10 and later), of two compute units each.
        """
        is_rdna = self.target.name.startswith("gfx1")
        return 2 * self.multiprocessors if is_rdna else self.multiprocessors

    @property
    def is_small_apu(self) -> bool:
        """Whether it shares the CPU's memory and has not the size of an accelerator, as MI300A has."""
        is_large = self.memory >= LARGE_APU_BYTES and self.compute_units >= LARGE_APU_UNITS
        return self.integrated and not is_large


_USUAL_MHZ = 2000
"""Assumed if the driver reports no clock."""

_FEW_UNITS, _FEW_TFLOPS = 20, 8.0
"""Radeon 780M has 12 units, gfx1036 (Ryzen 7000) 2. A CPU of 16 cores reaches some 2 TFLOP/s."""

LARGE_APU_BYTES = 64 << 30
LARGE_APU_UNITS = 64
"""An integrated GPU with at least so much memory and so many units is treated like a discrete one. MI300A has
128 GB and 228 units, Strix Halo up to 128 GB and 40 units, GB10 128 GB and 48 multiprocessors."""


@dataclass(frozen=True, slots=True)
class HostBuffer:
    """Page-locked host memory that the device can also address. array: uint8; address: the device's."""

    array: NDArray[np.uint8]
    host_address: int
    address: int


@dataclass(frozen=True, slots=True)
class Box:
    """What NVIDIA's tensor memory accelerator loads at once of an array, with the 128-byte swizzle and zeros
    outside of the array.

    sizes: of the array's dimensions, up to five, of which the first is contiguous. strides: in bytes, of all
    dimensions but the first. shape: of the box, in elements. precision: of the elements, fp16 or bf16.
    """

    precision: Precision
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]


class Call(NamedTuple):
    """A function of the driver, to be called later: its name, its address, and its arguments as integers."""

    name: str
    function: int
    arguments: tuple[int, ...]


NOT_READY = 600
"""What both vendors' drivers say of an event that has not happened."""


class Calls(ABC):
    """The calls that run a captured batch, to be made where there is no interpreter (evaluator._core).

    Each method is that of `Device` of the same name, but makes a Call of it. library: the driver's.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._address = cache(partial(function_address, library))

    def call(self, name: str, *arguments: Any) -> Call:
        """A call of one of the driver's functions. Raises DeviceError if it has no such function."""
        return Call(name, self._address(name), tuple(map(int, arguments)))

    @abstractmethod
    def activate(self) -> Call: ...

    @abstractmethod
    def upload(self, address: int, host_address: int, size: int, stream: Any) -> Call: ...

    @abstractmethod
    def download(self, host_address: int, address: int, size: int, stream: Any) -> Call: ...

    @abstractmethod
    def record(self, event: Any, stream: Any) -> Call: ...

    @abstractmethod
    def wait_for(self, stream: Any, event: Any) -> Call: ...

    @abstractmethod
    def synchronize(self, event: Any) -> Call: ...

    @abstractmethod
    def query(self, event: Any) -> Call:
        """Whether an event has happened: returns 0 if so, NOT_READY if not."""

    @abstractmethod
    def launch_graph(self, graph: Any, stream: Any) -> Call: ...

    @abstractmethod
    def raise_failure(self, call: Call, status: int) -> NoReturn:
        """Raise DeviceError for what a call returned."""


def function_address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of a library is. Raises DeviceError."""
    try:
        return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
    except AttributeError:
        raise DeviceError(f"{library._name} has no function {name}: update the driver") from None


class Device(ABC):
    """One GPU. Closed once; every handle dies with it."""

    info: DeviceInfo

    @abstractmethod
    def activate(self) -> None:
        """Make this the calling thread's device."""

    @abstractmethod
    def calls(self) -> Calls:
        """This device's calls."""

    # -- memory ----------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, size: int) -> int:
        """Device memory of `size` bytes, aligned to 256. Raises OutOfDeviceMemory."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Give memory of `allocate` back."""

    @abstractmethod
    def allocate_host(self, size: int, *, cached: bool = False) -> HostBuffer:
        """Page-locked host memory. cached: the device may keep what it reads in its caches, so that what is
        written later is seen by later launches only. Raises OutOfDeviceMemory."""

    @abstractmethod
    def free_host(self, buffer: HostBuffer) -> None:
        """Give memory of `allocate_host` back; its array must not be used any more."""

    @abstractmethod
    def free_memory(self) -> int:
        """Bytes that could be allocated now."""

    @abstractmethod
    def write(self, address: int, array: NDArray[Any]) -> None:
        """Copy a C-contiguous array to the device; it has arrived on return."""

    @abstractmethod
    def read(self, address: int, array: NDArray[Any]) -> None:
        """Copy from the device into a C-contiguous array; it has arrived on return."""

    @abstractmethod
    def upload(self, address: int, host_address: int, size: int, stream: Any) -> None:
        """Copy from page-locked memory, in the order of a stream."""

    @abstractmethod
    def download(self, host_address: int, address: int, size: int, stream: Any) -> None:
        """Copy to page-locked memory, in the order of a stream."""

    # -- kernels ---------------------------------------------------------------------------------------

    @abstractmethod
    def compiler_version(self) -> str:
        """What the compiled code depends on besides source, target and options."""

    @abstractmethod
    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        """Machine code of a source for this device's target. options: of the form -DNAME=VALUE. Raises
        CompilationError."""

    @abstractmethod
    def load(self, code: bytes, name: str, shared_bytes: int) -> Any:
        """The kernel `name` of some code, allowed `shared_bytes` of dynamic shared memory."""

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
        """Queue a kernel. overlap: it calls `wait_for_previous_kernel` itself and may start before the kernel
        queued before it has ended, where the hardware can do that. cooperative: its blocks wait for each
        other, so that all must be resident at once; only where `info.cooperative`."""

    def resident_blocks(self, kernel: Any, threads: int, shared_bytes: int, cluster: int) -> int:
        """How many blocks of a kernel, in clusters of `cluster`, run at once on an idle device."""
        raise DeviceError(f"{self.info.name} has no clusters of blocks")

    def tensor_map(self, address: int, box: Box) -> Argument:
        """A kernel's argument that lets the TMA (copy engine) load such boxes of the array at an address."""
        raise DeviceError(f"{self.info.name} has no tensor maps")

    # -- order -----------------------------------------------------------------------------------------

    @abstractmethod
    def create_stream(self) -> Any:
        """A queue of work that waits for no other."""

    @abstractmethod
    def create_event(self, *, timing: bool = False) -> Any:
        """A point in a stream. timing: `milliseconds` will be asked for it."""

    @abstractmethod
    def record(self, event: Any, stream: Any) -> None:
        """Let the event stand for everything queued in the stream so far."""

    @abstractmethod
    def wait_for(self, stream: Any, event: Any) -> None:
        """Let what is queued next in the stream wait for the event."""

    @abstractmethod
    def synchronize(self, event: Any) -> None:
        """Wait, with the GIL released, until the event has happened. Raises DeviceError for whatever failed
        before it."""

    @abstractmethod
    def milliseconds(self, start: Any, end: Any) -> float:
        """Between two events that have happened."""

    # -- graphs ----------------------------------------------------------------------------------------

    @abstractmethod
    def begin_capture(self, stream: Any) -> None:
        """Record what is queued in the stream from now on, instead of running it."""

    @abstractmethod
    def end_capture(self, stream: Any) -> Any:
        """What was recorded, as a graph that can be launched."""

    @abstractmethod
    def abandon_capture(self, stream: Any) -> None:
        """End a recording in which something has failed. Never raises."""

    @abstractmethod
    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Queue everything that a graph recorded."""

    @abstractmethod
    def release(self, handle: Any) -> None:
        """Give back a stream, an event or a graph that is not used any more, before `close` does."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the device. Idempotent."""

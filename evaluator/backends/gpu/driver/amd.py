# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs through the HIP runtime: by hip-python (7.x and 10.x), on Windows by hip_windows.py. hipRTC, if
there is one, compiles the kernels that are not shipped."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.driver import shipped
from evaluator.backends.gpu.driver.compiler import AMD_FLAGS
from evaluator.backends.gpu.driver.device import (
    Argument,
    Call,
    Calls,
    CompilationError,
    DeviceError,
    DeviceInfo,
    Gpu,
    HostBuffer,
    OutOfDeviceMemory,
)
from evaluator.backends.gpu.driver.target import amd_target

if sys.platform == "win32":
    from evaluator.backends.gpu.driver import hip_windows as hip

    hiprtc = hip
else:
    from hip import hip, hiprtc

log = logging.getLogger(__name__)

_ON_WINDOWS = sys.platform == "win32"
_STREAM_NON_BLOCKING = 1
_EVENT_DISABLE_TIMING = 2
_HOST_PORTABLE_MAPPED = 1 | 2
_HOST_NON_COHERENT = 0x80000000
_OUT_OF_MEMORY = 2
_NO_DEVICE = 100
_PCI_ADDRESS_BYTES = 16

_MAJORS = hip.LIBRARIES.values() if _ON_WINDOWS else (hip.HIP_VERSION_MAJOR,)
"""Versions of HIP that the binding is for."""

_LOADING = threading.Lock()
"""Held while code is loaded: two threads of a process that load code can deadlock in ROCm 7.2
(ROCm/legacy-rocm-build #6577)."""

_VERSION_7 = hip.__name__ == "hip.hip"
"""hip-python 7.x holds the GIL during every call, and searches libraries in one place only."""


def device_count() -> int:
    """Return the number of GPUs of the runtime. Raises DeviceError with what is missing."""
    try:
        status, count = _attempt(hip.hipGetDeviceCount)
        if int(status) == _NO_DEVICE:
            return 0
        _raise(status, "hipGetDeviceCount")
        version = int(_call(hip.hipRuntimeGetVersion))
        if shipped.archive_path() is None:
            compiler_version()
    except DeviceError as error:
        if "dlopen" not in str(error):
            raise
        library = "libhiprtc.so" if "hiprtc" in str(error) else "libamdhip64.so"
        raise DeviceError(
            f"{library} was not found in {_searched()}; install ROCm (its HIP runtime and development files) "
            f"or set {'LD_LIBRARY_PATH' if _VERSION_7 else 'ROCM_PATH'}"
        ) from error
    major, minor = _major_minor(version)
    if major not in _MAJORS:
        wanted = f"{hip.HIP_VERSION_MAJOR}.{hip.HIP_VERSION_MINOR}"
        raise DeviceError(
            f"hip-python here is for HIP {wanted}, but ROCm has HIP {major}.{minor}: install the ROCm or the "
            f"hip-python that fits the other"
        )
    return int(count)


def compiler_version() -> str:
    """Return hipRTC's version. Raises DeviceError if there is none."""
    major, minor = _call(hiprtc.hiprtcVersion)
    return f"hiprtc {major}.{minor}"


def describe(index: int) -> DeviceInfo:
    """Return the runtime's description of a GPU, without opening it."""
    if _VERSION_7:
        properties = hip.hipDeviceProp_t()
        _call(hip.hipGetDeviceProperties, properties, index)
    else:
        properties = _call(hip.hipGetDeviceProperties, index)
    major, minor = _major_minor(int(_call(hip.hipRuntimeGetVersion)))
    return DeviceInfo(
        vendor="amd",
        index=index,
        name=_text(properties.name),
        target=amd_target(_text(properties.gcnArchName)),
        memory=int(properties.totalGlobalMem),
        multiprocessors=int(properties.multiProcessorCount),
        driver=f"HIP {major}.{minor}",
        integrated=bool(properties.integrated),
        clock_mhz=int(getattr(properties, "clockRate", 0)) // 1000,
        pci=_pci_address(index),
    )


@contextmanager
def loading() -> Iterator[None]:
    """Context manager in which this thread alone loads code. Not reentrant."""
    with _LOADING:
        yield


def is_capturing(stream: int) -> bool:
    """Return True while calls in a stream are recorded. Raises DeviceError."""
    return bool(stream) and int(_call(hip.hipStreamIsCapturing, stream)) != 0


class AmdDevice(Gpu):
    """One AMD GPU."""

    def __init__(self, index: int) -> None:
        self.info = describe(index)
        self._index = index
        self._open = True
        # Everything that must be freed explicitly, because HIP has no context that would free it.
        self._addresses: set[int] = set()
        self._host_addresses: set[int] = set()
        self._handles: dict[int, tuple[Callable[..., Any], Any]] = {}
        self.activate()

    def activate(self) -> None:
        _call(hip.hipSetDevice, self._index)

    def calls(self) -> AmdCalls:
        return AmdCalls(self._index)

    # -- memory ----------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        address = int(_call(hip.hipMalloc, max(size, 1)))
        self._addresses.add(address)
        return address

    def free(self, address: int) -> None:
        self._addresses.discard(address)
        _call(hip.hipFree, address)

    def allocate_host(self, size: int, *, cached: bool = False) -> HostBuffer:
        flags = _HOST_PORTABLE_MAPPED | (_HOST_NON_COHERENT if cached else 0)
        address = int(_call(hip.hipHostMalloc, max(size, 1), flags))
        self._host_addresses.add(address)
        array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        return HostBuffer(array, address, int(_call(hip.hipHostGetDevicePointer, address, 0)))

    def free_host(self, buffer: HostBuffer) -> None:
        self._host_addresses.discard(buffer.host_address)
        _call(hip.hipHostFree, buffer.host_address)

    def free_memory(self) -> int:
        return int(_call(hip.hipMemGetInfo)[0])

    def write(self, address: int, array: NDArray[Any]) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        _call(hip.hipMemcpy, address, array.ctypes.data, array.nbytes, kind)

    def read(self, address: int, array: NDArray[Any]) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        _call(hip.hipMemcpy, array.ctypes.data, address, array.nbytes, kind)

    def upload(self, address: int, host_address: int, size: int, stream: Any) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        _call(hip.hipMemcpyAsync, address, host_address, size, kind, stream)

    def download(self, host_address: int, address: int, size: int, stream: Any) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        _call(hip.hipMemcpyAsync, host_address, address, size, kind, stream)

    # -- kernels ---------------------------------------------------------------------------------------

    def compiler_version(self) -> str:
        return f"{compiler_version()}, {self.info.driver}"

    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        target = self.info.target.name
        flags = [f"--offload-arch={target}", *AMD_FLAGS, *options]
        program = _call(hiprtc.hiprtcCreateProgram, source.encode(), f"{name}.hip".encode(), 0, None, None)
        try:
            result = hiprtc.hiprtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
            if int(result[0]) != 0:
                log = bytearray(int(_call(hiprtc.hiprtcGetProgramLogSize, program)))
                _call(hiprtc.hiprtcGetProgramLog, program, log)
                text = log.split(b"\0")[0].decode(errors="replace")
                raise CompilationError(f"hipRTC cannot compile {name} for {target}:\n{text}")
            code = bytearray(int(_call(hiprtc.hiprtcGetCodeSize, program)))
            _call(hiprtc.hiprtcGetCode, program, code)
        finally:
            hiprtc.hiprtcDestroyProgram(program.createRef())
        return bytes(code)

    def load(self, code: bytes, name: str, shared_bytes: int) -> Any:
        with loading():
            module = self._kept(hip.hipModuleUnload, _call(hip.hipModuleLoadData, code))
        return _call(hip.hipModuleGetFunction, module, name.encode())

    def loading(self) -> AbstractContextManager[None]:
        return loading()

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
        packed = _without_gaps(arguments)
        _call(hip.hipModuleLaunchKernel, kernel, *grid, threads, 1, 1, shared_bytes, stream, None, packed)

    # -- order -----------------------------------------------------------------------------------------

    def create_stream(self) -> Any:
        return self._kept(hip.hipStreamDestroy, _call(hip.hipStreamCreateWithFlags, _STREAM_NON_BLOCKING))

    def create_event(self, *, timing: bool = False) -> Any:
        flags = 0 if timing else _EVENT_DISABLE_TIMING
        return self._kept(hip.hipEventDestroy, _call(hip.hipEventCreateWithFlags, flags))

    def record(self, event: Any, stream: Any) -> None:
        _call(hip.hipEventRecord, event, stream)

    def wait_for(self, stream: Any, event: Any) -> None:
        _call(hip.hipStreamWaitEvent, stream, event, 0)

    def synchronize(self, event: Any) -> None:
        if _VERSION_7:
            status = _library().hipEventSynchronize(ctypes.c_void_p(int(event)))
            _raise(hip.hipError_t(status), "hipEventSynchronize")
        else:
            _call(hip.hipEventSynchronize, event)

    def milliseconds(self, start: Any, end: Any) -> float:
        return float(_call(hip.hipEventElapsedTime, start, end))

    # -- graphs ----------------------------------------------------------------------------------------

    def begin_capture(self, stream: Any) -> None:
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        _call(hip.hipStreamBeginCapture, stream, mode)

    def end_capture(self, stream: Any) -> Any:
        graph = _call(hip.hipStreamEndCapture, stream)
        try:
            executable = _call(hip.hipGraphInstantiateWithFlags, graph, 0)
        finally:
            hip.hipGraphDestroy(graph)
        return self._kept(hip.hipGraphExecDestroy, executable)

    def abandon_capture(self, stream: Any) -> None:
        graph = hip.hipStreamEndCapture(stream)[1]
        if graph is not None:
            hip.hipGraphDestroy(graph)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        _call(hip.hipGraphLaunch, graph, stream)

    def release(self, handle: Any) -> None:
        destroy, _ = self._handles.pop(id(handle))
        _call(destroy, handle)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        given_back = [
            (hip.hipSetDevice, self._index),
            *reversed(self._handles.values()),
            *((hip.hipFree, address) for address in self._addresses),
            *((hip.hipHostFree, address) for address in self._host_addresses),
        ]
        problems = set()
        for function, argument in given_back:
            try:
                _call(function, argument)
            except DeviceError as error:  # after a kernel has failed, every call fails
                problems.add(str(error))
        if problems:
            log.warning("%s: not everything was freed: %s", self.info.name, "; ".join(sorted(problems)))

    def _kept(self, destroy: Callable[..., Any], handle: Any) -> Any:
        """Return a handle after registering it for destruction with the device."""
        self._handles[id(handle)] = destroy, handle
        return handle


class AmdCalls(Calls):
    """Calls into the HIP runtime library loaded by hip-python."""

    prefix = "hip"

    def __init__(self, index: int) -> None:
        super().__init__(_library())
        self._index = index

    def activate(self) -> Call:
        return self.call("hipSetDevice", self._index)

    def upload(self, address: int, host_address: int, size: int, stream: Any) -> Call:
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        return self.call("hipMemcpyAsync", address, host_address, size, kind, stream)

    def download(self, host_address: int, address: int, size: int, stream: Any) -> Call:
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        return self.call("hipMemcpyAsync", host_address, address, size, kind, stream)

    def raise_failure(self, call: Call, status: int) -> NoReturn:
        _raise(hip.hipError_t(status), call.name)
        raise AssertionError(call)


def _without_gaps(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Return a kernel's arguments with zeros in alignment gaps. hip-python leaves uninitialised bytes there,
    which together with the number before can look like an address."""
    packed: list[Argument] = []
    at = 0
    for argument in arguments:
        size = ctypes.sizeof(argument)
        if at % size:
            packed.append(ctypes.c_int32(0))
            at += 4
        packed.append(argument)
        at += size
    return tuple(packed)


def _pci_address(index: int) -> str:
    """Return a device's PCI address; empty if unknown. Partitions of an MI300X differ in the function only,
    which hipDeviceProp_t does not have."""
    text = ctypes.create_string_buffer(_PCI_ADDRESS_BYTES)
    status = _library().hipDeviceGetPCIBusId(text, _PCI_ADDRESS_BYTES, index)
    return "" if status else text.value.decode()


def _text(value: Any) -> str:
    return value.split(b"\0")[0].decode() if isinstance(value, bytes) else str(value)


def _major_minor(version: int) -> tuple[int, int]:
    return version // 10_000_000, version // 100_000 % 100


def _searched() -> str:
    """Return where hip-python looks for a library."""
    if _VERSION_7:
        return "LD_LIBRARY_PATH and the system's library paths"
    folder = os.environ.get("ROCM_PATH") or os.environ.get("ROCM_HOME") or "/opt/rocm"
    return f"the package rocm_sdk, {folder}/lib, LD_LIBRARY_PATH and the system's library paths"


@cache
def _library() -> Any:
    """Return the library loaded by the binding, for calls that must release the GIL."""
    if _ON_WINDOWS:
        return hip.library()
    if _VERSION_7:
        return ctypes.CDLL("libamdhip64.so")
    from rocm.bindings.util.paths import get_library_path

    return ctypes.CDLL(os.fsdecode(get_library_path("amdhip64")))


def _attempt(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Return a HIP function's status and values."""
    try:
        result: tuple[Any, ...] = function(*arguments)
    except (RuntimeError, ValueError, OSError) as error:
        # The binding's: a missing library or function, an unknown error number, or a fault on Windows.
        raise DeviceError(f"{function.__name__}: {error}") from error
    return result


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return a HIP function's values. Raises DeviceError with the function's name."""
    status, *values = _attempt(function, *arguments)
    _raise(status, function.__name__)
    return values[0] if len(values) == 1 else tuple(values)


def _raise(status: Any, name: str) -> None:
    if int(status) == 0:
        return
    message = f"{name}: {getattr(status, 'name', status)} ({int(status)})"
    if isinstance(status, hip.hipError_t) and int(status) == _OUT_OF_MEMORY:
        raise OutOfDeviceMemory(message)
    raise DeviceError(message)

"""AMD GPUs through hip-python (7 and newer): the HIP runtime for everything, hipRTC as the compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from hip import hip, hiprtc
from numpy.typing import NDArray

from evaluator.gpu.compiler import AMD_FLAGS
from evaluator.gpu.device import (
    Argument,
    CompilationError,
    Device,
    DeviceError,
    DeviceInfo,
    HostBuffer,
    OutOfDeviceMemory,
)
from evaluator.gpu.target import amd_target

_STREAM_NON_BLOCKING = 1
_EVENT_DISABLE_TIMING = 2
_HOST_PORTABLE_MAPPED = 1 | 2
_OUT_OF_MEMORY = 2


def device_count() -> int:
    """How many GPUs the runtime sees. Raises DeviceError or ImportError with what is missing."""
    try:
        return int(_check(hip.hipGetDeviceCount()))
    except RuntimeError as error:  # hip-python's own, when it cannot dlopen a ROCm library
        raise DeviceError(f"ROCm was not found ({error})") from error


def describe(index: int) -> DeviceInfo:
    """What the runtime says about a GPU, without taking it."""
    properties = _check(hip.hipGetDeviceProperties(index))
    version = int(_check(hip.hipRuntimeGetVersion()))
    return DeviceInfo(
        vendor="amd",
        index=index,
        name=_text(properties.name),
        target=amd_target(_text(properties.gcnArchName)),
        memory=int(properties.totalGlobalMem),
        multiprocessors=int(properties.multiProcessorCount),
        driver=f"ROCm {version // 10_000_000}.{version // 100_000 % 100}",
        integrated=bool(properties.integrated),
    )


class AmdDevice(Device):
    """One AMD GPU."""

    def __init__(self, index: int) -> None:
        self.info = describe(index)
        self._index = index
        self.activate()

    def activate(self) -> None:
        _check(hip.hipSetDevice(self._index))

    # -- memory ----------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        return int(_check(hip.hipMalloc(max(size, 1))))

    def free(self, address: int) -> None:
        _check(hip.hipFree(address))

    def allocate_host(self, size: int) -> HostBuffer:
        address = int(_check(hip.hipHostMalloc(max(size, 1), _HOST_PORTABLE_MAPPED)))
        array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        return HostBuffer(array, address, int(_check(hip.hipHostGetDevicePointer(address, 0))))

    def free_host(self, buffer: HostBuffer) -> None:
        _check(hip.hipHostFree(buffer.host_address))

    def free_memory(self) -> int:
        return int(_check(hip.hipMemGetInfo())[0])

    def write(self, address: int, array: NDArray[Any]) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        _check(hip.hipMemcpy(address, array.ctypes.data, array.nbytes, kind))

    def read(self, address: int, array: NDArray[Any]) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        _check(hip.hipMemcpy(array.ctypes.data, address, array.nbytes, kind))

    def upload(self, address: int, host_address: int, size: int, stream: Any) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        _check(hip.hipMemcpyAsync(address, host_address, size, kind, stream))

    def download(self, host_address: int, address: int, size: int, stream: Any) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        _check(hip.hipMemcpyAsync(host_address, address, size, kind, stream))

    # -- kernels ---------------------------------------------------------------------------------------

    def compiler_version(self) -> str:
        major, minor = _check(hiprtc.hiprtcVersion())
        return f"hiprtc {major}.{minor}, {self.info.driver}"

    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        target = self.info.target.name
        flags = [f"--offload-arch={target}", *AMD_FLAGS, *options]
        program = _check(hiprtc.hiprtcCreateProgram(source.encode(), f"{name}.hip".encode(), 0, None, None))
        result = hiprtc.hiprtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        if int(result[0]) != 0:
            log = bytearray(int(_check(hiprtc.hiprtcGetProgramLogSize(program))))
            _check(hiprtc.hiprtcGetProgramLog(program, log))
            text = log.split(b"\0")[0].decode(errors="replace")
            raise CompilationError(f"hipRTC cannot compile {name} for {target}:\n{text}")
        code = bytearray(int(_check(hiprtc.hiprtcGetCodeSize(program))))
        _check(hiprtc.hiprtcGetCode(program, code))
        return bytes(code)

    def load(self, code: bytes, name: str, shared_bytes: int) -> Any:
        module = _check(hip.hipModuleLoadData(code))
        return _check(hip.hipModuleGetFunction(module, name.encode()))

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
    ) -> None:
        _check(
            hip.hipModuleLaunchKernel(
                kernel, *grid, threads, 1, 1, shared_bytes, stream, None, tuple(arguments)
            )
        )

    # -- order -----------------------------------------------------------------------------------------

    def create_stream(self) -> Any:
        return _check(hip.hipStreamCreateWithFlags(_STREAM_NON_BLOCKING))

    def create_event(self, *, timing: bool = False) -> Any:
        return _check(hip.hipEventCreateWithFlags(0 if timing else _EVENT_DISABLE_TIMING))

    def record(self, event: Any, stream: Any) -> None:
        _check(hip.hipEventRecord(event, stream))

    def wait_for(self, stream: Any, event: Any) -> None:
        _check(hip.hipStreamWaitEvent(stream, event, 0))

    def synchronize(self, event: Any) -> None:
        _check(hip.hipEventSynchronize(event))

    def milliseconds(self, start: Any, end: Any) -> float:
        return float(_check(hip.hipEventElapsedTime(start, end)))

    # -- graphs ----------------------------------------------------------------------------------------

    def begin_capture(self, stream: Any) -> None:
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        _check(hip.hipStreamBeginCapture(stream, mode))

    def end_capture(self, stream: Any) -> Any:
        graph = _check(hip.hipStreamEndCapture(stream))
        executable = _check(hip.hipGraphInstantiateWithFlags(graph, 0))
        _check(hip.hipGraphDestroy(graph))
        return executable

    def launch_graph(self, graph: Any, stream: Any) -> None:
        _check(hip.hipGraphLaunch(graph, stream))

    def close(self) -> None:
        """Nothing to let go of: HIP keeps one context per device and process."""


def _text(value: Any) -> str:
    return value.split(b"\0")[0].decode() if isinstance(value, bytes) else str(value)


def _check(result: tuple[Any, ...]) -> Any:
    """The values of a call's result, or its error as an exception."""
    status, *values = result
    if int(status) != 0:
        message = f"HIP error {getattr(status, 'name', status)}"
        if isinstance(status, hip.hipError_t) and int(status) == _OUT_OF_MEMORY:
            raise OutOfDeviceMemory(message)
        raise DeviceError(message)
    if len(values) == 1:
        return values[0]
    return tuple(values)

# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs through cuda-bindings: the driver for everything, NVRTC as the compiler."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from cuda.bindings import driver, nvrtc
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.device import (
    Argument,
    Box,
    Call,
    Calls,
    CompilationError,
    DeviceError,
    DeviceInfo,
    Gpu,
    HostBuffer,
    OutOfDeviceMemory,
)
from evaluator.backends.gpu.driver.target import Precision, Target, nvidia_target

_MOST_KEPT = 4096
"""Maximum number of cached launch configurations and of tensor maps."""

_STREAM_NON_BLOCKING = 1
_EVENT_DISABLE_TIMING = 2
_HOST_PORTABLE_MAPPED = 1 | 2

_DESTROY = {
    driver.CUstream: driver.cuStreamDestroy,
    driver.CUevent: driver.cuEventDestroy,
    driver.CUgraphExec: driver.cuGraphExecDestroy,
}


def device_count() -> int:
    """Return the number of GPUs of the driver. Raises DeviceError or ImportError with what is missing."""
    _initialize()
    return int(_check(driver.cuDeviceGetCount()))


def describe(index: int) -> DeviceInfo:
    """Return the driver's description of a GPU, without opening it."""
    _initialize()
    device = _check(driver.cuDeviceGet(index))
    attribute = driver.CUdevice_attribute

    def get(name: Any) -> int:
        return int(_check(driver.cuDeviceGetAttribute(name, device)))

    version = int(_check(driver.cuDriverGetVersion()))
    place = [
        get(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_PCI_{part}_ID")) for part in ("DOMAIN", "BUS", "DEVICE")
    ]
    target = nvidia_target(
        get(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        get(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
    return DeviceInfo(
        vendor="nvidia",
        index=index,
        name=_check(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode(),
        target=target,
        memory=int(_check(driver.cuDeviceTotalMem(device))),
        multiprocessors=get(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
        integrated=bool(get(attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED)),
        cooperative=target.persistent and bool(get(attribute.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)),
        clock_mhz=get(attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE) // 1000,
        pci="{:04x}:{:02x}:{:02x}.0".format(*place),
    )


class NvidiaDevice(Gpu):
    """One NVIDIA GPU in its primary context."""

    def __init__(self, index: int) -> None:
        self.info = describe(index)
        self._device = _check(driver.cuDeviceGet(index))
        self._context = _check(driver.cuDevicePrimaryCtxRetain(self._device))
        self._open = True
        self._resident: dict[tuple[int, int, int], int] = {}
        self._tensor_maps: dict[tuple[int, Box], Argument] = {}
        self._configs: dict[tuple[Any, ...], Any] = {}
        self._overlap = int(self.info.target.name.removeprefix("sm_")) >= 90
        self.activate()

    def activate(self) -> None:
        _check(driver.cuCtxSetCurrent(self._context))

    def calls(self) -> NvidiaCalls:
        return NvidiaCalls(self._context)

    # -- memory ----------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        return int(_check(driver.cuMemAlloc(max(size, 1))))

    def free(self, address: int) -> None:
        _check(driver.cuMemFree(address))

    def allocate_host(self, size: int, *, cached: bool = False) -> HostBuffer:
        address = int(_check(driver.cuMemHostAlloc(max(size, 1), _HOST_PORTABLE_MAPPED)))
        array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        return HostBuffer(array, address, int(_check(driver.cuMemHostGetDevicePointer(address, 0))))

    def free_host(self, buffer: HostBuffer) -> None:
        _check(driver.cuMemFreeHost(buffer.host_address))

    def free_memory(self) -> int:
        return int(_check(driver.cuMemGetInfo())[0])

    def write(self, address: int, array: NDArray[Any]) -> None:
        _check(driver.cuMemcpyHtoD(address, array.ctypes.data, array.nbytes))

    def read(self, address: int, array: NDArray[Any]) -> None:
        _check(driver.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes))

    def upload(self, address: int, host_address: int, size: int, stream: Any) -> None:
        _check(driver.cuMemcpyHtoDAsync(address, host_address, size, stream))

    def download(self, host_address: int, address: int, size: int, stream: Any) -> None:
        _check(driver.cuMemcpyDtoHAsync(host_address, address, size, stream))

    # -- kernels ---------------------------------------------------------------------------------------

    def compiler_version(self) -> str:
        return compiler_version()

    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        return compile_source(source, name, options, self.info.target)

    def load(self, code: bytes, name: str, shared_bytes: int) -> Any:
        module = _check(driver.cuModuleLoadData(code))
        kernel = _check(driver.cuModuleGetFunction(module, name.encode()))
        if shared_bytes > 48 << 10:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuFuncSetAttribute(kernel, attribute, shared_bytes))
        return kernel

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
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        config = self._config(grid, threads, shared_bytes, stream, overlap and self._overlap, cooperative)
        _check(driver.cuLaunchKernelEx(config, kernel, ctypes.addressof(pointers), 0))

    def _config(
        self,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        stream: Any,
        overlap: bool,
        cooperative: bool,
    ) -> Any:
        """Return a cached launch configuration: making one takes longer than a launch."""
        key = (grid, threads, shared_bytes, int(stream), overlap, cooperative)
        if (known := self._configs.get(key)) is not None:
            return known
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared_bytes
        config.hStream = stream
        if cooperative:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            config.numAttrs, config.attrs = 1, [attribute]
        elif overlap:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.numAttrs, config.attrs = 1, [attribute]
        if len(self._configs) >= _MOST_KEPT:
            self._configs.clear()
        self._configs[key] = config
        return config

    def resident_blocks(self, kernel: Any, threads: int, shared_bytes: int, cluster: int) -> int:
        key = (int(kernel), threads, shared_bytes)
        if key not in self._resident:
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
            config.sharedMemBytes = shared_bytes
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimension = attribute.value.clusterDim
            dimension.x, dimension.y, dimension.z = cluster, 1, 1
            config.numAttrs, config.attrs = 1, [attribute]
            clusters = int(_check(driver.cuOccupancyMaxActiveClusters(kernel, config)))
            if clusters == 0:
                raise DeviceError(f"clusters of {cluster} blocks do not fit on {self.info.name}")
            self._resident[key] = clusters * cluster
        return self._resident[key]

    def tensor_map(self, address: int, box: Box) -> Argument:
        known = self._tensor_maps.get((address, box))
        if known is None:
            if len(self._tensor_maps) >= _MOST_KEPT:
                self._tensor_maps.clear()
            known = self._tensor_maps[address, box] = self._encoded(address, box)
        return known

    @staticmethod
    def _encoded(address: int, box: Box) -> Argument:
        types = driver.CUtensorMapDataType
        described = _check(
            driver.cuTensorMapEncodeTiled(
                types.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                if box.precision is Precision.BF16
                else types.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                len(box.sizes),
                address,
                [driver.cuuint64_t(size) for size in box.sizes],
                [driver.cuuint64_t(stride) for stride in box.strides],
                [driver.cuuint32_t(size) for size in box.shape],
                [driver.cuuint32_t(1) for _ in box.sizes],
                driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
                driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        )
        return (ctypes.c_uint64 * 16)(*(int(word) for word in described.opaque))

    # -- order -----------------------------------------------------------------------------------------

    def create_stream(self) -> Any:
        return _check(driver.cuStreamCreate(_STREAM_NON_BLOCKING))

    def create_event(self, *, timing: bool = False) -> Any:
        return _check(driver.cuEventCreate(0 if timing else _EVENT_DISABLE_TIMING))

    def record(self, event: Any, stream: Any) -> None:
        _check(driver.cuEventRecord(event, stream))

    def wait_for(self, stream: Any, event: Any) -> None:
        _check(driver.cuStreamWaitEvent(stream, event, 0))

    def synchronize(self, event: Any) -> None:
        _check(driver.cuEventSynchronize(event))

    def milliseconds(self, start: Any, end: Any) -> float:
        return float(_check(driver.cuEventElapsedTime(start, end)))

    # -- graphs ----------------------------------------------------------------------------------------

    def begin_capture(self, stream: Any) -> None:
        _check(
            driver.cuStreamBeginCapture(
                stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            )
        )

    def end_capture(self, stream: Any) -> Any:
        graph = _check(driver.cuStreamEndCapture(stream))
        executable = _check(driver.cuGraphInstantiate(graph, 0))
        _check(driver.cuGraphDestroy(graph))
        return executable

    def abandon_capture(self, stream: Any) -> None:
        status, graph = driver.cuStreamEndCapture(stream)
        if int(status) == 0:
            driver.cuGraphDestroy(graph)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        _check(driver.cuGraphLaunch(graph, stream))

    def release(self, handle: Any) -> None:
        _check(_DESTROY[type(handle)](handle))

    def close(self) -> None:
        if self._open:
            self._open = False
            _check(driver.cuDevicePrimaryCtxRelease(self._device))


class NvidiaCalls(Calls):
    """Calls into the CUDA driver library loaded by cuda-bindings."""

    prefix = "cu"

    def __init__(self, context: Any) -> None:
        super().__init__(ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"))
        self._context = context

    def activate(self) -> Call:
        return self.call("cuCtxSetCurrent", self._context)

    def upload(self, address: int, host_address: int, size: int, stream: Any) -> Call:
        return self.call("cuMemcpyHtoDAsync_v2", address, host_address, size, stream)

    def download(self, host_address: int, address: int, size: int, stream: Any) -> Call:
        return self.call("cuMemcpyDtoHAsync_v2", host_address, address, size, stream)

    def raise_failure(self, call: Call, status: int) -> NoReturn:
        _check((driver.CUresult(status),))
        raise AssertionError(call)


def compile_source(source: str, name: str, options: Sequence[str], target: Target) -> bytes:
    """Return a cubin. Needs NVRTC but no GPU. Raises CompilationError."""
    return compile_with_log(source, name, options, target)[0]


def compile_with_log(source: str, name: str, options: Sequence[str], target: Target) -> tuple[bytes, str]:
    """Return a cubin and the compiler's log."""
    with _compiled(source, name, options, target) as (program, log):
        code = bytearray(int(_check(nvrtc.nvrtcGetCUBINSize(program))))
        _check(nvrtc.nvrtcGetCUBIN(program, code))
    return bytes(code), log


def compiler_version() -> str:
    """Return a version such as "nvrtc 13.0". Raises DeviceError if NVRTC's library is not found, which only
    the first call checks."""
    try:
        major, minor = _check(nvrtc.nvrtcVersion())
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise DeviceError(f"needs NVRTC (pip install nvidia-cuda-nvrtc): {reason}") from error
    return f"nvrtc {major}.{minor}"


@contextmanager
def _compiled(source: str, name: str, options: Sequence[str], target: Target) -> Iterator[tuple[Any, str]]:
    """Yield a compiled program and the compiler's log."""
    # "a" adds architecture-specific instructions (wgmma); the code then runs on exactly this capability.
    architecture = target.name + ("a" if target.name == "sm_90" else "")
    flags = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", *options]
    compiler_version()
    program = _check(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, None, None))
    try:
        result = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = bytearray(int(_check(nvrtc.nvrtcGetProgramLogSize(program))))
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        text = log.split(b"\0")[0].decode(errors="replace")
        if int(result[0]) != 0:
            raise CompilationError(f"NVRTC cannot compile {name} for {target.name}:\n{text}")
        yield program, text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _initialize() -> None:
    try:
        _check(driver.cuInit(0))
    except DeviceError:
        raise
    except Exception as error:  # cuda-pathfinder's own exceptions if libcuda is missing
        raise DeviceError(f"the NVIDIA driver was not found ({error})") from error


def _check(result: tuple[Any, ...]) -> Any:
    """Return the values of a call's result, or raise its error."""
    status, *values = result
    if int(status) != 0:
        message = f"{type(status).__name__} {status.name}"
        if isinstance(status, driver.CUresult) and status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfDeviceMemory(message)
        raise DeviceError(message)
    if len(values) == 1:
        return values[0]
    return tuple(values)

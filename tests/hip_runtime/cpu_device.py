"""A Device that runs the real kernels on CPU fibers (fibers.h): logic without a GPU, for small networks.

Allocations lie between guard zones that are checked when they are freed, and start out as NaN patterns.
Streams run what they are given at once; a graph is the list of what was captured.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.device import (
    Argument,
    CompilationError,
    Device,
    DeviceInfo,
    HostBuffer,
    OutOfDeviceMemory,
)
from evaluator.gpu.target import MatrixUnit, Target

FIBERS = Path(__file__).resolve().parent / "fibers.h"
_GUARD = 4096
_PATTERN = 0xA5

_LAUNCHER = """
extern "C" void launch(const int* grid, int threads, unsigned long shared_bytes, void** values) {
    fibers::launch(grid, threads, shared_bytes, [](void* v) { fibers::call(NAME, (void**)v); }, values);
}
"""


def unavailable() -> str | None:
    """Why there can be no CpuDevice here; None if there can."""
    if platform.machine().lower() not in ("x86_64", "amd64") or platform.system() == "Windows":
        return "fibers.h switches stacks as System V x86-64 does"
    return None if shutil.which("c++") else "needs a C++ compiler (c++)"


class CpuDevice(Device):
    """wave: lanes per wave, 32 or 64. memory: bytes that can be allocated in all."""

    def __init__(self, wave: int = 32, memory: int = 1 << 33) -> None:
        target = Target(f"cpu{wave}", wave, MatrixUnit.FMA, 64 << 10)
        self.info = DeviceInfo("cpu", 0, f"CPU fibers, wave {wave}", target, memory, 4, "none", False)
        self.launches = 0
        self._blocks: dict[int, NDArray[np.uint8]] = {}
        self._used = 0
        self._captured: list[Any] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._libraries: list[ctypes.CDLL] = []

    def activate(self) -> None:
        pass

    # -- memory ----------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        if self._used + size > self.info.memory:
            raise OutOfDeviceMemory(f"{size} bytes")
        block = np.full(size + 2 * _GUARD + 256, _PATTERN, np.uint8)
        address = (block.ctypes.data + _GUARD + 255) // 256 * 256
        start = address - block.ctypes.data
        block[start : start + size] = 0xFF
        self._blocks[address] = block[: start + size + _GUARD]
        self._used += size
        return address

    def free(self, address: int) -> None:
        block = self._blocks.pop(address)
        start = address - block.ctypes.data
        assert (block[:start] == _PATTERN).all(), "something wrote before a buffer"
        assert (block[-_GUARD:] == _PATTERN).all(), "something wrote behind a buffer"
        self._used -= len(block) - start - _GUARD

    def allocate_host(self, size: int) -> HostBuffer:
        address = self.allocate(size)
        array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        return HostBuffer(array, address, address)

    def free_host(self, buffer: HostBuffer) -> None:
        self.free(buffer.host_address)

    def free_memory(self) -> int:
        return self.info.memory - self._used

    def write(self, address: int, array: NDArray[Any]) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: NDArray[Any]) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def upload(self, address: int, host_address: int, size: int, stream: Any) -> None:
        self._do(lambda: ctypes.memmove(address, host_address, size))

    def download(self, host_address: int, address: int, size: int, stream: Any) -> None:
        self._do(lambda: ctypes.memmove(host_address, address, size))

    # -- kernels ---------------------------------------------------------------------------------------

    def compiler_version(self) -> str:
        return FIBERS.read_text("utf-8") + Path(__file__).read_text("utf-8")

    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "kernel.cpp").write_text(source + _LAUNCHER.replace("NAME", name), "utf-8")
            flags = ["-std=c++17", "-O1", "-fno-strict-aliasing", "-w", "-fPIC", "-shared"]
            run = subprocess.run(
                [
                    "c++",
                    *flags,
                    "-DWAVEFRONT_CPU",
                    f"-DWAVEFRONT_CPU_WAVE={self.info.target.wave}",
                    "-include",
                    str(FIBERS),
                    *options,
                    str(path / "kernel.cpp"),
                    "-o",
                    str(path / "kernel.so"),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode:
                raise CompilationError(run.stderr)
            return (path / "kernel.so").read_bytes()

    def load(self, code: bytes, name: str, shared_bytes: int) -> Any:
        path = Path(self._folder.name) / f"{len(self._libraries)}.so"
        path.write_bytes(code)
        library = ctypes.CDLL(str(path))
        self._libraries.append(library)
        return library.launch

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
        values = list(arguments)

        def run() -> None:
            self.launches += 1
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            kernel((ctypes.c_int * 3)(*grid), threads, ctypes.c_ulong(shared_bytes), pointers)

        self._do(run)

    # -- order -----------------------------------------------------------------------------------------

    def create_stream(self) -> Any:
        return object()

    def create_event(self, *, timing: bool = False) -> Any:
        return object()

    def record(self, event: Any, stream: Any) -> None:
        pass

    def wait_for(self, stream: Any, event: Any) -> None:
        pass

    def synchronize(self, event: Any) -> None:
        pass

    def milliseconds(self, start: Any, end: Any) -> float:
        return 1.0

    # -- graphs ----------------------------------------------------------------------------------------

    def begin_capture(self, stream: Any) -> None:
        self._captured = []

    def end_capture(self, stream: Any) -> Any:
        captured, self._captured = self._captured, None
        return captured

    def launch_graph(self, graph: Any, stream: Any) -> None:
        for step in graph:
            step()

    def close(self) -> None:
        self._folder.cleanup()

    def _do(self, step: Any) -> None:
        if self._captured is not None:
            self._captured.append(step)
        else:
            step()

"""The stand-in runtime itself, through hip-python: what it is told to be, and that another strategy can run
the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluator.gpu.device import CompilationError, DeviceError
from tests.hip_runtime import standin


class Python(standin.Strategy):
    """Kernels are Python functions of (memory, arguments)."""

    def __init__(self) -> None:
        self.compiled: list[list[str]] = []

    def compile(self, source: str, name: str, options: list[str]) -> tuple[bytes, str]:
        if "error" in source:
            raise ValueError("error is not a kernel")
        self.compiled.append(options)
        header = bytearray(64)
        header[:5] = b"\x7fELF\x02"
        header[40:48] = (64).to_bytes(8, "little")  # where the sections are: none follow
        return bytes(header), ""

    def load(self, code: bytes, target: str) -> Any:
        return target

    def function(self, module: Any, name: str) -> Any:
        return f"{name} of {module}"

    def launch(
        self, function: Any, grid: Sequence[int], block: Sequence[int], shared_bytes: int, arguments: bytes
    ) -> None:
        if function != "fill of gfx1201":
            raise ValueError(f"no kernel {function}")
        ctypes.memset(int.from_bytes(arguments[:8], "little"), arguments[8], grid[0] * block[0])


def test_another_strategy_compiles_and_launches(runtime: standin.Runtime) -> None:
    from evaluator.gpu.amd import AmdDevice

    runtime.reset("gfx1201")
    strategy = Python()
    runtime.set_strategy(strategy)
    device = AmdDevice(0)
    code = device.compile("", "fill", ["-DX=1"])
    assert "--offload-arch=gfx1201" in strategy.compiled[0]
    with pytest.raises(CompilationError, match="error is not a kernel"):
        device.compile("error", "fill", [])
    kernel = device.load(code, "fill", 0)
    buffer = device.allocate_host(64)
    stream, done = device.create_stream(), device.create_event()
    device.launch(kernel, (2, 1, 1), 32, 0, [ctypes.c_uint64(buffer.address), ctypes.c_int32(7)], stream)
    device.record(done, stream)
    device.synchronize(done)
    assert (buffer.array == 7).all()
    device.launch(device.load(code, "other", 0), (1, 1, 1), 1, 0, [], stream)
    device.record(done, stream)
    with pytest.raises(DeviceError, match="hipErrorLaunchFailure"):
        device.synchronize(done)


def test_code_for_another_target_is_refused(runtime: standin.Runtime, tmp_path: Path) -> None:
    from evaluator.gpu.amd import AmdDevice

    runtime.reset("gfx1100;gfx942")
    first = AmdDevice(0)
    code = first.compile("KERNEL(nothing, 1)() {}", "nothing", [])
    first.load(code, "nothing", 0)
    second = AmdDevice(1)
    with pytest.raises(DeviceError, match="NoBinaryForGpu"):
        second.load(code, "nothing", 0)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in runtime itself, through hip-python: it finds mistakes, and another strategy can run the
kernels."""

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.backends.gpu.driver.device import CompilationError, DeviceError, Gpu
from tests.evaluator.backends.gpu.fibers import open_amd
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
    from evaluator.backends.gpu.driver.amd import AmdDevice

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
    from evaluator.backends.gpu.driver.amd import AmdDevice

    runtime.reset("gfx1100;gfx942")
    first = AmdDevice(0)
    code = first.compile("KERNEL(nothing, 1)() {}", "nothing", [])
    first.load(code, "nothing", 0)
    second = AmdDevice(1)
    with pytest.raises(DeviceError, match="NoBinaryForGpu"):
        second.load(code, "nothing", 0)


def _freed_twice(device: Gpu) -> None:
    address = device.allocate(64)
    device.free(address)
    device.free(address)


def _copied_too_much(device: Gpu) -> None:
    device.write(device.allocate(64), np.zeros(65, np.uint8))


def _host_address_on_the_device(device: Gpu) -> None:
    buffer = device.allocate_host(64)
    device.write(buffer.host_address, np.zeros(64, np.uint8))


def _waited_for_nothing(device: Gpu) -> None:
    device.wait_for(device.create_stream(), device.create_event())


def _timed_without_timing(device: Gpu) -> None:
    event, stream = device.create_event(), device.create_stream()
    device.record(event, stream)
    device.synchronize(event)
    device.milliseconds(event, event)


def _launched_a_graph_that_is_gone(device: Gpu) -> None:
    stream = device.create_stream()
    device.begin_capture(stream)
    graph = device.end_capture(stream)
    device.release(graph)
    device.launch_graph(graph, stream)


def _allocated_while_capturing(device: Gpu) -> None:
    device.begin_capture(device.create_stream())
    device.allocate(64)


def _left_a_branch_open(device: Gpu) -> None:
    stream, aside, event = device.create_stream(), device.create_stream(), device.create_event()
    buffer = device.allocate_host(64)
    address = device.allocate(64)
    device.begin_capture(stream)
    device.record(event, stream)
    device.wait_for(aside, event)
    device.upload(address, buffer.host_address, 64, aside)
    device.end_capture(stream)


def _used_a_stream_of_another_device(device: Gpu) -> None:
    event, stream = device.create_event(), device.create_stream()
    open_amd(1)  # from here on it is the thread's device
    device.record(event, stream)


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (_freed_twice, "hipFree: freed twice"),
        (_copied_too_much, "hipMemcpy: 65 bytes from byte 0 of a block of 64"),
        (_host_address_on_the_device, "hipMemcpy: the host's address given to a device"),
        (_waited_for_nothing, "hipStreamWaitEvent: an event that was never recorded"),
        (_timed_without_timing, "hipEventElapsedTime: an event made without timing"),
        (_launched_a_graph_that_is_gone, "hipGraphLaunch: a graph that was destroyed"),
        (_allocated_while_capturing, "hipMalloc: not allowed while this thread captures"),
        (_left_a_branch_open, "hipStreamEndCapture: a stream that takes part was not joined"),
        (_used_a_stream_of_another_device, "hipEventRecord: a stream of device 0 while the thread uses 1"),
    ],
)
def test_mistakes_are_found(runtime: standin.Runtime, mistake: Callable[[Gpu], None], found: str) -> None:
    runtime.reset("gfx1100;gfx1100")
    with contextlib.suppress(DeviceError):
        mistake(open_amd())
    assert [each for each in runtime.report().misuse if each.startswith(found)]
    runtime.reset()

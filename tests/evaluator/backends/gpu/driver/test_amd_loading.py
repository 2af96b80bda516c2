# SPDX-License-Identifier: GPL-3.0-or-later
"""Code is loaded by one thread at a time, and never by a call that is captured."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from evaluator.backends.gpu.blas.library import Library, LibraryProduct, Operands
from evaluator.backends.gpu.driver.device import DeviceError, Gpu
from evaluator.backends.gpu.driver.target import Precision
from tests.evaluator.backends.gpu.blas.libraries import opened
from tests.evaluator.backends.gpu.driver.test_standin import Python
from tests.evaluator.backends.gpu.fibers import open_amd
from tests.hip_runtime.blas_standin import Control
from tests.hip_runtime.standin import Runtime

SIDE = 16
PRODUCT = LibraryProduct(SIDE, SIDE, SIDE, SIDE, SIDE, bias=False, residual=False)


class Slow(Python):
    """Waits in `load` for a second thread there, but not for long."""

    def __init__(self) -> None:
        super().__init__()
        self._meeting = threading.Barrier(2)

    def load(self, code: bytes, target: str) -> Any:
        try:
            self._meeting.wait(0.1)
        except threading.BrokenBarrierError:
            self._meeting.reset()
        return super().load(code, target)


def load_twice(runtime: Runtime, load: Callable[[Gpu, bytes], object]) -> list[str]:
    """Load on two devices from a thread each. Returns what the runtime objects to."""
    runtime.reset("gfx1201;gfx1201")
    runtime.set_strategy(Slow())
    devices = [open_amd(index) for index in range(2)]
    code = devices[0].compile("", "fill", [])

    def work(device: Gpu) -> None:
        device.activate()
        load(device, code)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, devices))
    return runtime.report().misuse


def test_code_is_loaded_by_one_thread_at_a_time(runtime: Runtime) -> None:
    assert load_twice(runtime, lambda device, code: device.load(code, "fill", 0)) == []


def test_the_standin_finds_threads_that_load_concurrently(runtime: Runtime) -> None:
    from hip import hip

    found = load_twice(runtime, lambda device, code: hip.hipModuleLoadData(code))
    assert found == ["hipModuleLoadData: another thread loads code, too"]
    runtime.reset()


def test_code_waits_for_a_library_that_loads(runtime: Runtime) -> None:
    device = open_amd()
    code = device.compile("KERNEL(nothing, 1)() {}", "nothing", [])
    loaded = threading.Event()

    def load() -> None:
        device.activate()
        device.load(code, "nothing", 0)
        loaded.set()

    thread = threading.Thread(target=load)
    with device.loading():
        thread.start()
        assert not loaded.wait(0.1)
    thread.join(20)
    assert loaded.is_set()


@pytest.fixture(params=["hipBLAS", "hipBLASLt"])
def library(
    request: pytest.FixtureRequest, runtime: Runtime, controls: dict[str, Control]
) -> Iterator[Library]:
    made = opened(request.param, Precision.FP32)
    yield made
    made.close()


def test_the_first_call_of_an_algorithm_is_not_captured(runtime: Runtime, library: Library) -> None:
    device = open_amd()
    matrix = SIDE * SIDE * Precision.FP32.bytes
    a, b, out, workspace = (device.allocate(size) for size in (*[matrix] * 3, library.workspace))
    stream, done = device.create_stream(), device.create_event()
    algorithm = library.algorithms(PRODUCT)[0]

    def multiply() -> None:
        operands = Operands(a, b, 0, 0, out)
        library.multiply(PRODUCT, algorithm, operands, workspace=workspace, stream=int(stream))

    device.begin_capture(stream)
    with pytest.raises(DeviceError, match=rf"{library.name}: "):
        multiply()
    device.abandon_capture(stream)
    multiply()
    device.record(done, stream)
    device.synchronize(done)
    device.begin_capture(stream)
    multiply()
    device.launch_graph(device.end_capture(stream), stream)
    device.record(done, stream)
    device.synchronize(done)

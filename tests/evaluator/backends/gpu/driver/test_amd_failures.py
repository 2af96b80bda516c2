# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD calls that fail: the error names the call, nothing is left behind, and what can go on goes on."""

import ctypes
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaluator.backends import BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import DeviceError, OutOfDeviceMemory
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.options import Formats
from evaluator.backends.gpu.tuning.tune import Tuner
from evaluator.network.spec import Activation
from protocol.batch import EvaluationBatch
from tests.evaluator.backends.gpu.fibers import COPIED, open_again, open_amd, open_on_fibers, right
from tests.hip_runtime.standin import Report, Runtime

pytest.importorskip("hip", reason="needs hip-python, which is for Linux on x86-64")
from evaluator.backends.gpu.driver.amd import _without_gaps

pytestmark = pytest.mark.integration

BUCKETS = (4, COPIED)
OUT_OF_MEMORY, UNKNOWN, LAUNCH_FAILURE = 2, 999, 719


def test_closing_gives_everything_back(runtime: Runtime, network: Any, kernel_cache: Path) -> None:
    backend = open_on_fibers(runtime, network, kernel_cache, buckets=BUCKETS)
    of_device = {"device memory", "event", "executable graph", "host memory", "module", "stream"}
    assert set(runtime.report().alive) == of_device
    for _ in range(2):
        backend.close()
        assert runtime.report().alive == {}
    assert runtime.report().used == [0]


def calls_of(runtime: Runtime, before: Report) -> dict[str, int]:
    """How often each function was called since."""
    now = runtime.report().calls
    return {name: count - before.calls.get(name, 0) for name, count in now.items()}


def test_opening_frees_everything_when_call_fails(runtime: Runtime, network: Any, kernel_cache: Path) -> None:
    open_again(network, kernel_cache, buckets=BUCKETS, check=False).close()  # compiles what no test has yet
    before = runtime.report()
    open_again(network, kernel_cache, buckets=BUCKETS, check=False).close()
    calls = calls_of(runtime, before)
    releasing = {name for name in calls if "Destroy" in name or "Free" in name or "Unload" in name}
    optional = {"hipDeviceGetPCIBusId"}  # a device without an address is used
    opening = {name: count for name, count in calls.items() if count and name not in releasing | optional}
    assert {"hipMalloc", "hipHostMalloc", "hipModuleLoadData", "hipMemcpy", "hipSetDevice"} <= set(opening)
    for name, count in opening.items():
        for nth in {1, (count + 1) // 2} if name != "hipSetDevice" else {1}:  # closing calls it too
            runtime.reset()
            runtime.fail(name, UNKNOWN, nth=nth)
            with pytest.raises((DeviceError, BackendError), match=name):
                _open_and_close(network, kernel_cache)
            assert runtime.report().alive == {}, name


def _open_and_close(network: Any, cache: Path) -> None:
    """As `open` of the backend does it: the device is closed if it does not work out."""
    with closing(open_amd()) as device:
        wanted = Wanted(Formats(Precision.FP32), deterministic=True, buckets=BUCKETS, check=False)
        OpenNetwork(network, device, wanted, compiler=Compiler(device, cache_folder=cache))


@pytest.mark.parametrize("count", [3, COPIED])
def test_batch_is_right_after_failure(runtime: Runtime, network: Any, kernel_cache: Path, count: int) -> None:
    with open_on_fibers(runtime, network, kernel_cache, buckets=BUCKETS) as backend:

        def evaluate() -> EvaluationBatch:
            for batch in backend.executor.in_flight:
                batch.graphs.clear()  # so that captures are among what can fail
            return backend.evaluate(probe_batch(count, seed=1))

        before = runtime.report()
        evaluate()
        used = {name for name, times in calls_of(runtime, before).items() if times}
        assert {"hipGraphLaunch", "hipStreamEndCapture", "hipEventSynchronize"} <= used
        assert ("hipMemcpyAsync" in used) == (count == COPIED)
        for name in used - {"hipGraphDestroy"}:
            runtime.fail(name, UNKNOWN)
            with pytest.raises(BackendError, match=name):
                evaluate()
            assert right(backend, evaluate(), count, seed=1), name
    assert runtime.report().alive == {}


def test_a_failed_kernel_ends_the_device_but_not_the_process(
    runtime: Runtime, network: Any, kernel_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = open_on_fibers(runtime, network, kernel_cache)
    runtime.fail("launch", LAUNCH_FAILURE)
    for _ in range(2):
        with pytest.raises(BackendError, match="hipErrorLaunchFailure"):
            backend.evaluate(probe_batch(2))
    with caplog.at_level(logging.WARNING):
        backend.close()
    assert "not everything was freed" in caplog.text


def test_standin_finds_writes_outside_of_memory(runtime: Runtime) -> None:
    device = open_amd()
    code = device.compile("KERNEL(stray, 1)(char* to, int at) { to[at] = 1; }", "stray", [])
    kernel = device.load(code, "stray", 0)
    stream, done = device.create_stream(), device.create_event()

    def store(address: int, at: int) -> None:
        device.launch(kernel, (1, 1, 1), 1, 0, [ctypes.c_uint64(address), ctypes.c_int32(at)], stream)
        device.record(done, stream)
        device.synchronize(done)

    memory = device.allocate(100)
    store(memory, 99)
    assert runtime.report().misuse == []
    store(memory, 100)
    device.free(memory)
    assert runtime.report().misuse == ["something wrote outside of a block of 100 bytes"]
    with pytest.raises(DeviceError, match="hipModuleLaunchKernel"):
        store(memory, 0)
    assert runtime.report().misuse[-1].endswith("memory that was freed")
    with pytest.raises(DeviceError, match="hipErrorIllegalAddress"):
        store(device.allocate(256), 256)
    assert runtime.report().misuse[-1] == "kernel stray touched byte 256 of a block of 256"
    runtime.reset()


def test_measuring_leaves_nothing_without_memory(runtime: Runtime, kernel_cache: Path) -> None:
    device = open_amd()
    tuner = Tuner(device, Compiler(device, cache_folder=kernel_cache), Precision.FP32, ())
    product = Product(16, 32, 64, Activation.RELU, residual=True, followed=True)
    for nth in (1, 4, 8):
        runtime.fail("hipMalloc", OUT_OF_MEMORY, nth=nth)
        with pytest.raises(OutOfDeviceMemory, match="hipMalloc"):
            tuner.measure(product)
        assert runtime.report().used == [0]
    device.close()
    assert runtime.report().alive == {}


def test_gaps_between_arguments_are_zeros() -> None:
    """What hip-python leaves there could look like an address that was freed."""
    pointer, number = ctypes.c_uint64(5), ctypes.c_float(1.0)
    assert [type(each) for each in _without_gaps([pointer, number, pointer, number, number, pointer])] == [
        *(ctypes.c_uint64, ctypes.c_float, ctypes.c_int32, ctypes.c_uint64),
        *(ctypes.c_float, ctypes.c_float, ctypes.c_uint64),
    ]

# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches that compute beside each other: each in its device stream, right in any order."""

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.driver.device import OutOfDeviceMemory
from evaluator.backends.gpu.run.device_streams import FEWEST_UNITS, DeviceStreams
from evaluator.backends.gpu.run.executor import Executor
from evaluator.backends.gpu.run.memory import Memory
from evaluator.backends.gpu.run.self_check import SelfCheckError
from tests.evaluator.backends.gpu.fibers import COPIED, evaluates, open_on_fibers
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.integration

FEW = 4
SIZES = FEW, COPIED


@pytest.fixture
def backend(runtime: Runtime, network: Any, kernel_cache: Path) -> Iterator[GpuBackend]:
    with open_on_fibers(runtime, network, kernel_cache, buckets=SIZES) as backend:
        yield backend
    assert runtime.report().alive == {}


def streams_of_two(runtime: Runtime, backend: GpuBackend, count: int) -> list[str]:
    """The streams in which two batches compute that are in flight at once, and that both are right."""
    for seed in (1, 2):
        assert evaluates(backend, count, seed)
    queued = len(runtime.report().trace)
    runtime.hold(True)
    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(evaluates, backend, count, seed) for seed in (5, 6)]
        assert runtime.await_waiting(2)
        trace = [line.split() for line in runtime.report().trace[queued:]]
        runtime.hold(False)
        assert all(result.result() for result in results)
    return [line[0] for line in trace if line[1] == "graph"]


@pytest.mark.parametrize("count", SIZES)
def test_two_batches_compute_in_own_streams(runtime: Runtime, backend: GpuBackend, count: int) -> None:
    assert len(set(streams_of_two(runtime, backend, count))) == 1
    assert backend.executor.open_streams([count])
    backend.executor.compute_beside([count])
    assert len(set(streams_of_two(runtime, backend, count))) == 2
    (other,) = set(SIZES) - {count}
    assert len(set(streams_of_two(runtime, backend, other))) == 1
    used = runtime.report().used[0]
    backend.executor.compute_beside([])
    assert runtime.report().used[0] < used
    assert len(set(streams_of_two(runtime, backend, count))) == 1


@pytest.mark.parametrize("order", ["lazy", "eager", "1"])
def test_results_are_right_in_every_order(runtime: Runtime, backend: GpuBackend, order: str) -> None:
    runtime.set_order(order)
    assert backend.executor.open_streams(SIZES)
    backend.executor.compute_beside(SIZES)
    assert all(backend.executor.time_together(size, 1) > 0 for size in SIZES)
    with ThreadPoolExecutor(2) as threads:
        cases = [(count, seed) for seed in range(4) for count in (3, COPIED)]
        assert all(threads.map(lambda case: evaluates(backend, *case), cases))


def test_no_lanes_are_used_when_memory_is_short(
    runtime: Runtime, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = runtime.report().used[0]
    allocate, given = backend.executor.device.allocate, []

    def little(size: int) -> int:
        given.append(size)
        return allocate(size if len(given) < 4 else 1 << 60)

    monkeypatch.setattr(backend.executor.device, "allocate", little)
    assert not backend.executor.open_streams(SIZES)
    assert runtime.report().used[0] == used
    assert len(set(streams_of_two(runtime, backend, FEW))) == 1


def times_of(monkeypatch: pytest.MonkeyPatch, serial: dict[int, float], beside: dict[int, float]) -> None:
    """What two batches take, one after the other and beside each other, in place of a clock."""

    def milliseconds(executor: Executor, size: int, repeats: int = 10) -> float:
        return (beside if size in executor.beside else serial)[size]

    monkeypatch.setattr(Executor, "time_together", milliseconds)


SERIAL = {FEW: 1.0, COPIED: 2.0}
LONG = {FEW: 1.0, COPIED: 2.5}


@pytest.mark.parametrize(
    ("serial", "beside", "units", "chosen"),
    [
        (SERIAL, {FEW: 0.6, COPIED: 3.0}, FEWEST_UNITS, {FEW}),
        (SERIAL, {FEW: 0.6, COPIED: 1.75}, FEWEST_UNITS, {FEW, COPIED}),
        (SERIAL, {FEW: 0.95, COPIED: 2.05}, FEWEST_UNITS, set()),
        (SERIAL, {FEW: 0.6, COPIED: 1.75}, FEWEST_UNITS - 2, set()),
        (LONG, {FEW: 0.6, COPIED: 1.75}, FEWEST_UNITS, {FEW}),
    ],
)
def test_batches_compute_beside_each_other_where_that_is_sooner(
    runtime: Runtime,
    network: Any,
    kernel_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    serial: dict[int, float],
    beside: dict[int, float],
    units: int,
    chosen: set[int],
) -> None:
    times_of(monkeypatch, serial, beside)
    devices = f"gfx1100,processors={units // 2}"  # HIP counts pairs of compute units there
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, buckets=SIZES) as backend:
        assert backend.executor.beside == chosen
        for count in SIZES:
            assert len(set(streams_of_two(runtime, backend, count))) == (2 if count in chosen else 1)
    assert runtime.report().alive == {}


def test_a_lane_that_computes_wrong_is_not_used(
    runtime: Runtime, network: Any, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_of(monkeypatch, SERIAL, {FEW: 0.5, COPIED: 1.0})
    evaluate = Executor.evaluate

    def broken(self: Executor, parts: Any) -> Any:
        found = evaluate(self, parts)
        if self.beside and sum(map(len, parts)) == FEW:
            found.logits[:] += np.linspace(0, 9, len(found.logits), dtype=np.float32)
        return found

    monkeypatch.setattr(Executor, "evaluate", broken)
    devices = f"gfx1100,processors={FEWEST_UNITS // 2}"
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, buckets=SIZES) as backend:
        assert backend.executor.beside == {COPIED}
        assert backend.computes_beside(COPIED) and not backend.computes_beside(COPIED + 1)


def test_no_lanes_are_used_when_a_library_has_private_memory(
    runtime: Runtime, network: Any, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_of(monkeypatch, SERIAL, {FEW: 0.5, COPIED: 1.0})
    monkeypatch.setattr(Executor, "may_compute_beside", lambda self, size: size != FEW)
    devices = f"gfx1100,processors={FEWEST_UNITS // 2}"
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, buckets=SIZES) as backend:
        assert backend.executor.beside == {COPIED}


@pytest.mark.parametrize("error", [OutOfDeviceMemory("no memory"), SelfCheckError("no answer")])
def test_batches_run_one_by_one_when_concurrent_ones_fail(
    runtime: Runtime, network: Any, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(self: Executor, size: int, repeats: int = 10) -> float:
        if self.beside:
            raise error
        return 1.0

    monkeypatch.setattr(Executor, "time_together", fails)
    devices = f"gfx1100,processors={FEWEST_UNITS // 2}"
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, buckets=SIZES) as backend:
        assert not backend.executor.beside
        assert all(batch.device_stream is None for batch in backend.executor.in_flight)
        assert evaluates(backend, FEW, 1)
    assert runtime.report().alive == {}


def test_each_lane_has_its_own_copy_of_what_kernels_write_to(runtime: Runtime, backend: GpuBackend) -> None:
    device = backend.executor.device
    memory = Memory(device)
    zeros = np.zeros(16, np.uint32)
    streams = DeviceStreams(device, {}, {}, {"weights": 1, "counters": 2}, {"counters": zeros}, 0)
    first, second = (streams.open(memory, []).buffers.weights for _ in range(2))
    assert first["weights"] == second["weights"] == 1
    assert len({first["counters"], second["counters"], 2}) == 3
    for each in (first, second):
        assert ctypes.string_at(each["counters"], zeros.nbytes) == zeros.tobytes()
    memory.free()

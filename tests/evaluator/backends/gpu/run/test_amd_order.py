# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of work on an AMD GPU: two batches in flight on streams of their own, right in every order that
the streams allow, and no wait that could be left out."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evaluator.backends import BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.driver.device import Call
from tests.evaluator.backends.gpu.fibers import COPIED, evaluates, open_on_fibers, right
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.integration


@pytest.fixture
def backend(runtime: Runtime, network: Any, kernel_cache: Path) -> Iterator[GpuBackend]:
    with open_on_fibers(runtime, network, kernel_cache, buckets=(4, COPIED)) as backend:
        yield backend


def test_two_batches_in_flight_wait_without_a_lock(runtime: Runtime, backend: GpuBackend) -> None:
    for seed in (1, 2):  # every slot has its graph
        backend.evaluate(probe_batch(COPIED, seed=seed))
    queued = len(runtime.report().trace)
    runtime.hold(True)
    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(backend.evaluate, probe_batch(COPIED, seed=seed)) for seed in (5, 6)]
        assert runtime.await_waiting(2)
        trace = [line.split() for line in runtime.report().trace[queued:]]
        runtime.hold(False)
        for seed, result in zip((5, 6), results, strict=True):
            assert right(backend, result.result(), COPIED, seed)

    streams = {
        what: [line[0] for line in trace if line[1] == what] for what in ("upload", "graph", "download")
    }
    assert streams["upload"] == streams["download"] or streams["upload"] == streams["download"][::-1]
    assert len(set(streams["upload"])) == 2
    assert len(set(streams["graph"])) == 1
    assert not set(streams["graph"]) & set(streams["upload"])
    calls = runtime.report().calls
    assert "hipDeviceSynchronize" not in calls
    assert "hipStreamSynchronize" not in calls


@pytest.mark.parametrize("order", ["lazy", "eager", "1"])
def test_results_are_right_in_every_order(runtime: Runtime, backend: GpuBackend, order: str) -> None:
    runtime.set_order(order)
    cases = [(count, seed) for seed in range(4) for count in (3, COPIED)]
    with ThreadPoolExecutor(2) as threads:
        results = threads.map(lambda case: backend.evaluate(probe_batch(case[0], seed=case[1])), cases)
        for (count, seed), result in zip(cases, results, strict=True):
            assert right(backend, result, count, seed)


def _uploaded(backend: GpuBackend, stream: Any, event: Any) -> bool:
    return any(event is batch.uploaded for batch in backend.executor.in_flight)


def _computed(backend: GpuBackend, stream: Any, event: Any) -> bool:
    return any(event is batch.computed for batch in backend.executor.in_flight)


def _forked(backend: GpuBackend, stream: Any, event: Any) -> bool:
    return event is backend.executor.device_stream.recorder.forked


def _joined(backend: GpuBackend, stream: Any, event: Any) -> bool:
    return event is backend.executor.device_stream.recorder.joined


@pytest.mark.parametrize(
    ("left_out", "count"), [(_uploaded, COPIED), (_computed, COPIED), (_forked, 3), (_joined, 3)]
)
def test_a_wait_that_is_omitted_is_found(
    rocm: Path,
    runtime: Runtime,
    network: Any,
    kernel_cache: Path,
    left_out: Callable[[GpuBackend, Any, Any], bool],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_on_fibers(runtime, network, kernel_cache, buckets=(4, COPIED)) as backend:
        for batch in backend.executor.in_flight:
            batch.graphs.clear()  # captured again, without the wait
        device = backend.executor.device
        wait = device.wait_for

        def forgetful(stream: Any, event: Any) -> None:
            if not left_out(backend, stream, event):
                wait(stream, event)

        calls = backend.executor.runner.calls
        wait_later = calls.wait_for

        def forgetful_later(stream: Any, event: Any) -> Call:
            return calls.activate() if left_out(backend, stream, event) else wait_later(stream, event)

        monkeypatch.setattr(device, "wait_for", forgetful)
        monkeypatch.setattr(calls, "wait_for", forgetful_later)
        found = False
        for seed in (5, 6):
            try:
                found |= not evaluates(backend, count, seed)
            except BackendError as error:
                assert "hipStream" in str(error)
                found = True
        assert found
        monkeypatch.undo()
    runtime.reset()  # what the missing wait made the runtime complain about is not this test's mistake


def test_a_third_thread_waits_until_a_batch_is_done(runtime: Runtime, backend: GpuBackend) -> None:
    backend.evaluate(probe_batch(COPIED))
    runtime.hold(True)
    begun = threading.Barrier(4)

    def evaluate(seed: int) -> bool:
        begun.wait()
        return evaluates(backend, COPIED, seed)

    with ThreadPoolExecutor(3) as threads:
        results = [threads.submit(evaluate, seed) for seed in (1, 2, 3)]
        begun.wait()
        assert runtime.await_waiting(2)
        runtime.hold(False)
        assert all(result.result() for result in results)

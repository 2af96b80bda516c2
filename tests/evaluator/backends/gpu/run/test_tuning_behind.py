# SPDX-License-Identifier: GPL-3.0-or-later
"""tuning=behind: a network is served by guesses at once, and by what was measured afterwards."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from evaluator.backends.common import crashes
from evaluator.backends.common.base import BackendError
from evaluator.backends.common.device_lease import Stopped, exclusive_lease
from evaluator.backends.gpu import backend as gpu
from evaluator.backends.gpu import opening as gpu_opening
from evaluator.backends.gpu.driver.discovery import discover
from evaluator.backends.gpu.run.self_check import SelfCheck, SelfCheckError
from evaluator.backends.gpu.tuning.child import measure_in_child
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network.random_network import random_network
from tests.evaluator.backends.gpu.fibers import SHAPE, cache_with_kernels, evaluates
from tests.hip_runtime.standin import Runtime
from tests.paths import CACHE

pytestmark = pytest.mark.kernels

NETWORK = random_network(SHAPE, seed=3)


@pytest.fixture
def first_start(
    machine: Runtime, rocm: Path, kernel_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Runtime:
    """A machine on which nothing has been measured; processes that are started see it as well. Kernels that
    other tests have compiled are not compiled again."""
    monkeypatch.setenv(CACHE, str(cache_with_kernels(tmp_path / "cache", kernel_cache)))
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(rocm / "lib"))
    monkeypatch.setenv("STANDIN_DEVICES", "gfx1100")
    return machine


def open_network(tuning: str, device: str = "") -> gpu.GpuBackend:
    """Open it without the vendor's libraries. Earlier tests of this process may have loaded some. The process
    that measures would not find them, and write another file of the cache."""
    return gpu.open(NETWORK, device=device, precision="fp32", buckets="1", tuning=tuning, libraries=False)


def test_guesses_then_measurements_are_used_and_kept(
    first_start: Runtime, kernel_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:  # compilers are slow at the priority of what measures behind
        elsewhere.setenv(CACHE, str(cache_with_kernels(tmp_path / "other", kernel_cache)))
        open_network("before").close()
    leased: list[bool] = []
    told: list[str] = []

    @contextmanager
    def lease() -> Iterator[None]:
        leased.append(True)
        yield

    with open_network("behind") as guessed:
        assert guessed.provisional
        assert evaluates(guessed, 1, seed=1)
        assert not list((tmp_path / "cache").rglob("gemm/*.json"))
        found = guessed.tuned(lease, told.append)
        assert found is not None
        with found:
            assert not found.provisional
            assert found.buckets == guessed.buckets
            assert evaluates(found, 1, seed=1)
            assert evaluates(guessed, 1, seed=1)  # may still have batches in flight
    assert len(leased) > len(told) > 2
    assert told[-1].split(" of ")[0] == told[-1].split(" of ")[1]
    with open_network("behind") as again:
        assert not again.provisional
        assert again.tuned(exclusive_lease, told.append) is None
    assert first_start.report().alive == {}


def test_equal_devices_share_what_is_measured(first_start: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return function(*arguments)

        return call

    first_start.reset("gfx1100;gfx1100")
    monkeypatch.setenv("STANDIN_DEVICES", "gfx1100;gfx1100")
    found = discover()
    monkeypatch.setattr(gpu, "found_devices", lambda: found)
    monkeypatch.setattr(crashes, "records", lambda: True)
    monkeypatch.setattr(gpu_opening, "measure_in_child", counted("measure", measure_in_child))
    monkeypatch.setattr(ReferenceBackend, "evaluate", counted("reference", ReferenceBackend.evaluate))
    with ThreadPoolExecutor(2) as threads:
        opening = [threads.submit(open_network, "before", f"amd:{index}") for index in range(2)]
        backends = [each.result() for each in opening]
    assert sorted(calls) == ["measure", "reference"]
    for backend in backends:
        with backend:
            assert evaluates(backend, 1, seed=1)


def test_off_stays_with_guesses(first_start: Runtime) -> None:
    with open_network("off") as backend:
        assert backend.provisional
        assert evaluates(backend, 1, seed=1)
        assert backend.tuned(exclusive_lease, lambda text: None) is None


def test_guesses_that_are_wrong_are_measured_before(
    first_start: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest, checks = SelfCheck.run, iter([True])

    def run(check: SelfCheck) -> None:
        if next(checks, False):
            raise SelfCheckError("the first is wrong")
        honest(check)

    monkeypatch.setattr(SelfCheck, "run", run)
    with open_network("behind") as backend:
        assert not backend.provisional
        assert evaluates(backend, 1, seed=1)
    assert "the first is wrong; measuring" in caplog.text
    assert first_start.report().alive == {}


def test_a_service_that_ends_ends_it(first_start: Runtime) -> None:
    def lease() -> AbstractContextManager[None]:
        raise Stopped

    with open_network("behind") as backend, pytest.raises(Stopped):
        backend.tuned(lease, lambda text: None)


def test_program_stays_if_tuning_fails(first_start: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_network("behind") as backend:
        monkeypatch.setenv("STANDIN_FAIL", "hipModuleLoadData:1:1:209")
        with pytest.raises(BackendError, match="hipErrorNoBinaryForGpu"):
            backend.tuned(exclusive_lease, lambda text: None)
        assert evaluates(backend, 1, seed=1)


def test_another_value_is_refused() -> None:
    with pytest.raises(BackendError, match="'later'"):
        gpu.open(NETWORK, tuning="later")

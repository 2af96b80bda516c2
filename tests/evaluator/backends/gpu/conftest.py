# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPU tests share."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from evaluator.backends.gpu.driver import discovery, shipped
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.discovery import discover, open_device
from evaluator.backends.gpu.driver.target import nvidia_target
from evaluator.network.random_network import random_network
from tests.evaluator.backends.gpu.blas.libraries import require
from tests.evaluator.backends.gpu.fibers import SHAPE, open_amd
from tests.hip_runtime import blas_standin, standin
from tests.hip_runtime.blas_standin import Control
from tests.hip_runtime.command import AMD_NODES
from tests.paths import CACHE


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Building the stand-in takes six seconds of a processor."""
    for item in items:
        if {"rocm", "blas_folder"} & set(item.fixturenames):
            item.add_marker(pytest.mark.kernels)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fibers on a busy machine hold the device for longer than a GPU's driver may hang."""
    monkeypatch.setattr("evaluator.backends.gpu.tuning.child._SLICE_S", 60.0)


def _shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One cache of compiled kernels for all workers of a test run: compiling is most of these tests' time."""
    return _shared_folder(tmp_path_factory, worker_id) / "kernels"


@pytest.fixture(scope="session")
def network() -> Any:
    """A small network with smolgen."""
    return random_network(SHAPE, seed=3)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache folder is the test's own."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_: str(tmp_path))


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the stand-in runtime, built once per test run. Skips where it cannot run."""
    reason = standin.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return standin.build(standin.kept(_shared_folder(tmp_path_factory, worker_id) / "rocm"))


@pytest.fixture
def runtime(rocm: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[standin.Runtime]:
    """The stand-in runtime in this process, as a machine with one gfx1100. Whatever a correct program does
    not do fails the test at its end. It runs no kernel that is shipped."""
    monkeypatch.setattr(shipped, "archive_path", lambda: None)
    runtime = standin.load(rocm)
    runtime.reset()
    yield runtime
    misuse = runtime.report().misuse
    runtime.reset()
    assert misuse == []


@pytest.fixture
def device(runtime: standin.Runtime) -> Gpu:
    """That of the runtime."""
    return open_amd()


@pytest.fixture
def machine(
    runtime: standin.Runtime, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[standin.Runtime]:
    """The runtime in this process, on a machine with a driver, so that devices are discovered."""
    monkeypatch.setitem(discovery.DEVICE_NODES, "amd", AMD_NODES)
    monkeypatch.setenv(CACHE, str(kernel_cache.parent / "cache"))
    discovery.found_devices.cache_clear()
    yield runtime
    discovery.found_devices.cache_clear()


@pytest.fixture(scope="module")
def hopper_device() -> Iterator[Any]:
    """The machine's first GPU of compute capability 9.0. Skips where there is none."""
    found = discover()
    devices = [info for info in found.devices if info.target == nvidia_target(9, 0)]
    if not devices:
        pytest.skip(f"needs compute capability 9.0; {found.problems.get('nvidia', 'there is another')}")
    device = open_device(devices[0])
    yield device
    device.close()


@pytest.fixture(scope="session")
def blas_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A ROCM_PATH with stand-ins for hipBLAS and hipBLASLt, one for all workers of a test run."""
    require()
    return blas_standin.build(standin.kept(_shared_folder(tmp_path_factory, worker_id) / "blas"))


@pytest.fixture
def controls(blas_folder: Path) -> Iterator[dict[str, Control]]:
    """The stand-ins in this process, doing nothing wrong at first."""
    loaded = blas_standin.load(blas_folder)
    for control in loaded.values():
        control.reset()
    yield loaded
    for control in loaded.values():
        control.fail("")
    for thread in threading.enumerate():
        if thread.name == "matrix product":  # one that was given up, and may return now
            thread.join()

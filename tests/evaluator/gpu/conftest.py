"""What the GPU tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hip_runtime import standin


def _shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One cache of compiled kernels for all workers of a test run: compiling is most of these tests' time."""
    return _shared_folder(tmp_path_factory, worker_id) / "kernels"


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the stand-in runtime, built once per test run. Skips where it cannot run."""
    reason = standin.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return standin.build(_shared_folder(tmp_path_factory, worker_id) / "rocm")


@pytest.fixture
def runtime(rocm: Path) -> Iterator[standin.Runtime]:
    """The stand-in runtime in this process, as a machine with one gfx1100. Whatever a correct program does
    not do fails the test at its end."""
    runtime = standin.load(rocm)
    runtime.reset()
    yield runtime
    misuse = runtime.report().misuse
    runtime.reset()
    assert misuse == []

"""What the GPU tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One cache of compiled kernels for all workers of a test run: compiling is most of these tests' time."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "kernels"

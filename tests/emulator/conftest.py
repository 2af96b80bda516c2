# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine whose AMD GPU is the instruction emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.gpu.driver.device import Device
from evaluator.gpu.inspect import clang
from tests.emulator import instructions
from tests.emulator.offline import COMPILER
from tests.emulator.strategy import Emulation
from tests.evaluator.gpu.fibers import open_amd
from tests.hip_runtime import standin


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in runtime. Skips where there is no emulator."""
    reason = instructions.unavailable() or standin.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return standin.build(tmp_path_factory.getbasetemp() / "rocm")


@pytest.fixture
def device(request: pytest.FixtureRequest, rocm: Path) -> Iterator[Device]:
    """The target that the test names, through hip-python. Whatever a correct program does not do fails the
    test at its end."""
    reason = clang.unavailable(request.param, COMPILER)
    if reason is not None:
        pytest.skip(reason)
    runtime = standin.load(rocm)
    runtime.reset(request.param)
    runtime.set_strategy(Emulation())
    yield open_amd()
    misuse = runtime.report().misuse
    runtime.reset()
    assert misuse == []

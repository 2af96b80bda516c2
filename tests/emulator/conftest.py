# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine whose AMD GPU is the instruction emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.backends.gpu.driver.device import Gpu
from scripts import amd_compilers
from tests.emulator import instructions
from tests.emulator.offline import COMPILER
from tests.emulator.strategy import Emulation
from tests.evaluator.backends.gpu.fibers import open_amd
from tests.hip_runtime import standin

FEW_TARGETS = ("gfx942", "gfx1100", "gfx1201")
"""One target of each kind of matrix unit. Other targets' tests are slow, apart from one whole network."""
EVERY_TARGET = "test_position_has_equal_bits_in_every_batch"


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent) or item.originalname == EVERY_TARGET:
            continue
        target = item.callspec.params.get("device") if hasattr(item, "callspec") else None
        if isinstance(target, str) and target not in FEW_TARGETS:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in runtime. Skips where there is no emulator."""
    reason = instructions.unavailable() or standin.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return standin.build(tmp_path_factory.getbasetemp() / "rocm")


@pytest.fixture
def device(request: pytest.FixtureRequest, rocm: Path) -> Iterator[Gpu]:
    """The target that the test names, through hip-python. Whatever a correct program does not do fails the
    test at its end."""
    reason = amd_compilers.unavailable(request.param, COMPILER)
    if reason:
        pytest.skip(reason)
    runtime = standin.load(rocm)
    runtime.reset(request.param)
    runtime.set_strategy(Emulation())
    yield open_amd()
    misuse = runtime.report().misuse
    runtime.reset()
    assert misuse == []

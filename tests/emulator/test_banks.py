# SPDX-License-Identifier: GPL-3.0-or-later
"""The conflicts of banks that the model of speed counts with are those of the machine code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.model.banks import conflicts
from evaluator.gpu.plan.program import Launch
from tests.emulator.banks import UNITS, count, cycles, layouts
from tests.emulator.offline import COMPILER
from tests.hip_runtime import standin

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]


def test_cycles_of_an_access() -> None:
    lanes = np.arange(32, dtype=np.uint32)
    assert cycles(4 * lanes, 4) == 1
    assert cycles(np.zeros(32, np.uint32), 4) == 1  # all read one word
    assert cycles(8 * lanes, 4) == 2  # 32 words in 16 banks
    assert cycles(128 * lanes, 4) == 32
    assert cycles(16 * lanes, 16) == 4  # 512 bytes
    assert cycles(80 * lanes, 16) == 4  # rows a chunk longer than 64 bytes: 8 of them in 32 banks
    assert cycles(64 * lanes, 16) == 16  # without that chunk every second row is in the same banks


@pytest.mark.skipif(COMPILER != "", reason="the table is of the default compiler's code")
@pytest.mark.parametrize("device", UNITS, indirect=True)
def test_the_table_is_what_the_emulator_counts(device: Device, rocm: Path) -> None:
    runtime = standin.load(rocm)
    for counted in layouts(device, all_tiles=False):
        launch = counted.programs[0].steps[0]
        assert isinstance(launch, Launch)
        assert launch.kernel.precision is Precision.FP16
        expected = conflicts(launch.kernel, device.info.target)
        assert count(device, runtime, counted) == pytest.approx(expected, rel=0.02)

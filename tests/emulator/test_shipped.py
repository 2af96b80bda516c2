# SPDX-License-Identifier: GPL-3.0-or-later
"""The code objects of a release, run as every target: AMD_CODE_OBJECTS names the archive."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from evaluator.backends.gpu import GpuBackend
from evaluator.backends.gpu_opening import OpenNetwork, Wanted
from evaluator.backends.gpu_options import Formats
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.driver import shipped
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from scripts import code_objects
from tests.emulator.instructions import TARGETS
from tests.emulator.test_networks import LIMITS, assert_close
from tests.evaluator.gpu.fibers import ModelTuner

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(1800)]

NETWORKS = ("maia", "wavefront-cpu.pb.gz")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", [each for each in TARGETS if shipped.family(each)], indirect=True)
def test_shipped_kernels_compute_a_network(
    device: Device, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = os.environ.get("AMD_CODE_OBJECTS")
    if archive is None:
        pytest.skip("AMD_CODE_OBJECTS does not name what scripts.code_objects has made")
    monkeypatch.setattr(shipped, "archive_path", lambda: Path(archive))
    network, precision = code_objects.networks()[name], Precision.FP16
    compiler = Compiler(device, cache_folder=tmp_path)
    wanted, tuner = Wanted(Formats(precision), buckets=(1, 9), check=False), ModelTuner(device, precision)
    with GpuBackend(OpenNetwork(network, device, wanted, compiler=compiler, tuner=tuner)) as backend:
        for count in (1, 9):
            batch = probe_batch(count, seed=5)
            expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
            result = backend.evaluate(batch)
            assert_close(result.logits, expected.logits, LIMITS[precision][0], precision)
            assert np.abs(result.wdl - expected.wdl).max() <= LIMITS[precision][1]
    assert compiler.compiled == 0

# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs on Windows: the product under Wine, with a stand-in for the driver's DLL and shipped kernels.

WAVEFRONT_WINDOWS names a folder with the product in python/python.exe, and Wine's prefix. The kernels run on
CPU fibers.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evaluator.backends.gpu.driver.target import Precision, amd_target
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.tiles import model_chooser
from evaluator.network.random_network import random_network
from tests.hip_runtime import windows
from tests.programs import run

BUCKETS = (4, 32)  # read where the batch lies in the host's memory, and copied

START = """
import sys
from pathlib import Path
from evaluator.backends.common import crashes
from evaluator.backends.gpu.driver import shipped
shipped.archive_path = lambda: Path(ARCHIVE)
"""
EVALUATE = """
import json
import numpy as np
from evaluator.backends import open_backend
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network.random_network import random_network
crashes.record_crashes()
network = random_network("tiny-attention", seed=3)
options = {"precision": "fp32", "deterministic": True, "buckets": BUCKETS}
with open_backend("gpu", network, **options) as backend:
    off = []
    for count in (3, 30):
        batch = probe_batch(count, seed=5)
        expected = ReferenceBackend(network).evaluate(batch)
        off.append(float(np.abs(backend.evaluate(batch).logits - expected.logits).max()))
    print(json.dumps({"device": backend.device, "off": off}))
"""
COMMAND = "from evaluator.cli import main\nsys.exit(main())\n"

pytestmark = [pytest.mark.kernels, pytest.mark.timeout(600)]


@dataclass
class Windows:
    folder: Path
    archive: Path

    @property
    def dll(self) -> Path:
        return self.folder / "prefix" / "drive_c" / "windows" / "system32" / "amdhip64_7.dll"

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        start = START.replace("ARCHIVE", repr(f"Z:{self.archive}"))
        of = {
            **os.environ,
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            "PYTHONUTF8": "1",
            "COLUMNS": "400",
        }
        python = ("wine", self.folder / "python" / "python.exe", "-P", "-c")
        words = (start + script, *arguments)
        return run(*python, *words, status=None, env=of | environment, input="", timeout=None)

    def evaluate(self, **environment: str) -> subprocess.CompletedProcess[str]:
        script = EVALUATE.replace("BUCKETS", repr("+".join(map(str, BUCKETS))))
        return self.run(script, **environment)

    def devices(self, *arguments: str, **environment: str) -> str:
        return self.run(COMMAND, "devices", *arguments, **environment).stdout


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    where = os.environ.get("WAVEFRONT_WINDOWS")
    if where is None or shutil.which("wine") is None:
        pytest.skip("needs Wine, and WAVEFRONT_WINDOWS with the product for Windows")
    if reason := windows.unavailable():
        pytest.skip(reason)
    made = Windows(Path(where), tmp_path_factory.mktemp("kernels") / "archive.zip")
    target, precision = amd_target("gfx1100"), Precision.FP32
    choose = model_chooser(target, precision, 16, deterministic=True)
    plan = Plan(random_network("tiny-attention", seed=3), target, precision, choose, fused=False)
    windows.ship(made.archive, {key: None for n in BUCKETS for key, _ in plan.program(n).kernels()}, target)
    windows.build_runtime(made.dll.parent)
    yield made
    made.dll.unlink()


def test_a_network_is_evaluated(system: Windows, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = system.evaluate(STANDIN_REPORT=f"Z:{report}", STANDIN_DEVICES="gfx1101,name=Radeon")
    assert "gfx1101" in done.stdout, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert max(found["off"]) < 1e-4
    seen = json.loads(report.read_text())
    assert seen["misuse"] == []
    assert seen["alive"] == {}


def test_devices_are_named_and_their_absence(system: Windows) -> None:
    assert "Radeon" in system.devices(STANDIN_DEVICES="gfx1201,name=Radeon RX 9070")
    assert "the driver sees no device" in system.devices(STANDIN_DEVICES="")
    assert "hipGetDeviceCount" in system.devices(STANDIN_FAIL="hipGetDeviceCount:1:9:999")
    system.dll.rename(system.dll.with_suffix(".away"))
    try:
        found = system.devices()
    finally:
        system.dll.with_suffix(".away").rename(system.dll)
    assert "amdhip64_6.dll is in System32: install AMD's display driver" in found


def test_a_kernel_that_is_not_shipped_is_an_error_with_a_remedy(system: Windows) -> None:
    done = system.evaluate(STANDIN_DEVICES="gfx1030")
    assert "not shipped for gfx1030" in done.stderr
    assert "onnx:provider=directml" in done.stderr


def test_a_driver_that_crashes_is_excluded(system: Windows) -> None:
    done = system.evaluate(STANDIN_ABORT="hipGraphLaunch")
    assert "off" not in done.stdout  # Wine's debugger ends the process with status 0
    found = system.devices()
    assert "is not used: it ended the process by access violation" in found
    assert "is not used" not in system.devices("--retry-gpu")

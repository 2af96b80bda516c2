# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report says of a network that is open on a GPU, here of CPU fibers."""

import json
from pathlib import Path

import pytest

from evaluator import cli
from evaluator.backends.gpu.driver.target import Precision
from evaluator.commands import report as report_command
from evaluator.commands.report import measurements
from evaluator.network.random_network import random_network
from tests.evaluator.backends.gpu.fibers import open_on_fibers
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.kernels


@pytest.mark.slow
def test_every_launch_is_timed_and_predicted(runtime: Runtime, kernel_cache: Path) -> None:
    network = random_network("tiny-attention", seed=1)
    with open_on_fibers(
        runtime, network, kernel_cache, devices="gfx1100", precision=Precision.FP16, buckets=(1, 2)
    ) as backend:
        found = json.loads(json.dumps(measurements(backend)))
    assert found["agreement"]["ok"]
    assert [point["batch"] for point in found["curve"]] == [1, 2]
    assert set(found["launches"]) == {"1", "2"}
    launches = found["launches"]["1"]
    assert {"gemm", "attention", "rows", "expand"} <= {each["kernel"] for each in launches}
    assert all(each["us"] >= 0 for each in launches)
    if found["predicted"] == "for Radeon RX 7900 XTX":
        assert all(each["predicted_us"] > 3 and each["limit"] for each in launches)
    else:
        assert found["predicted"].startswith("nothing: needs ")


def test_a_precision_that_a_gpu_has_not_is_refused_with_the_reason(
    machine: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_command, "run_in_child", lambda function, *given: function(*given))
    out = tmp_path / "report.json"
    flags = ["--network", "random:tiny-attention", "--device", "amd:0", "--precision", "fp8"]
    assert cli.main(["report", *flags, "--out", str(out)]) == 1
    (run,) = json.loads(out.read_text())["runs"]
    assert run["error"].startswith("precision=fp8 is not for gfx1100: its matrix unit has no e4m3; ")
    assert run["error"].endswith("use precision=fp16")
    assert "launches" not in run
    assert machine.report().alive == {}

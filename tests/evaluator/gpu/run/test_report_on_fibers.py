"""What a report says of a network that is open on a GPU, here of CPU fibers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluator.commands.report import measurements
from evaluator.gpu.driver.target import Precision
from evaluator.network.random_network import random_network
from tests.evaluator.gpu.fibers import open_on_fibers
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.kernels


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

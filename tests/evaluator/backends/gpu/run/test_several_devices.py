# SPDX-License-Identifier: GPL-3.0-or-later
"""Two GPUs of unlike kinds side by side, on the stand-in runtime: found, opened, and used by the service at
the same time, with one cache of programs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.backends import Backend
from evaluator.backends.gpu import backend as gpu
from evaluator.backends.gpu.driver import discovery
from evaluator.backends.gpu.driver.discovery import Discovery, discover
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.devices.opening.loading import Loader
from evaluator.network import NetworkSpec
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from evaluator.settings import DeviceSettings
from tests.backends.batches import varied_batch
from tests.evaluator.backends.gpu.fibers import open_again
from tests.evaluator.service.harness import devices
from tests.hip_runtime.command import AMD_NODES
from tests.hip_runtime.standin import Runtime


@pytest.fixture
def found(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Discovery:
    """What discovery makes of a machine with two GPUs that can be used, with waves of 32 and of 64 lanes, and
    one that is too old."""
    runtime.reset("gfx1100,name=first;gfx803,name=old;gfx942,name=second")
    monkeypatch.setitem(discovery.DEVICE_NODES, "amd", AMD_NODES)
    found = discover()
    monkeypatch.setattr(gpu, "found_devices", lambda: found)
    return found


def test_an_unsupported_device_is_omitted_and_said_to_be(found: Discovery) -> None:
    listed = [(each.name, each.index) for each in found.devices if each.vendor == "amd"]
    assert listed == [("first", 0), ("second", 2)]
    assert found.problems["amd"].startswith("old: gfx803 is not supported")


def test_a_network_is_served_on_all_of_them(found: Discovery, kernel_cache: Path, tmp_path: Path) -> None:
    def open_backend(
        name: str, network: NetworkSpec | None, settings: DeviceSettings, **options: Any
    ) -> Backend:
        assert network is not None
        index = int(str(options["device"]).removeprefix("amd:"))
        return open_again(network, kernel_cache, device=index, buckets=(2,))

    network = random_network("tiny-attention")
    path = tmp_path / "network.pb.gz"
    write_network(network, path)
    loader = Loader(devices("gpu:device=amd:all"), open_backend=open_backend)
    served = loader.load(path)
    backends = [runner.backend for runner in served.runners]
    try:
        assert [backend.device.split(" (")[0] for backend in backends] == ["first", "second"]
        assert len({runner.device.name for runner in served.runners}) == 2
        batches = [varied_batch(2, seed=seed) for seed in range(4)]
        expected = [ReferenceBackend(network, dtype="float64").evaluate(batch) for batch in batches]
        # Both from one thread by turns, then each from a thread of its own.
        turns = [backends[index % 2].evaluate(batch) for index, batch in enumerate(batches)]
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(backends[1 - i % 2].evaluate, batch) for i, batch in enumerate(batches)]
        for right, *results in zip(expected, turns, (job.result() for job in jobs), strict=True):
            for result in results:
                assert np.abs(result.logits - right.logits).max() < 1e-3
                assert np.abs(result.wdl - right.wdl).max() < 1e-3
    finally:
        for backend in backends:
            backend.close()

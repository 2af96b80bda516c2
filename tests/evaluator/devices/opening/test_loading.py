# SPDX-License-Identifier: GPL-3.0-or-later
"""Real networks in a real evaluator process: served, loaded beside, with the heads asked for."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from evaluator.backends import open_backend, parse_backend
from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.devices.opening.loading import Loader, shipped_network
from evaluator.network import SHIPPED_GPU_NETWORK, SHIPPED_NETWORK, load_network
from evaluator.service.lifecycle import LifeCycle
from evaluator.settings import DeviceSettings
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import LoadFailed
from protocol.wire import messages
from tests.evaluator.service import process as processes
from tests.evaluator.service.echo import EchoBackend
from tests.evaluator.service.harness import devices
from tests.paths import CACHE, DATA, REPOSITORY

NETWORKS = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))


@contextmanager
def serving(network: Path, caches: Path) -> Iterator[EvaluatorClient]:
    """A client of a process that serves a network."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), CACHE: str(caches)}
    flags = ("--embedded", "--network", str(network), "--backend", "onnx", "--threads", "1")
    with (
        processes.serving(environment, *flags, "--calibration-s", "0.05") as process,
        EvaluatorClient(processes.event(process, "bound")["address"], timeout=60.0) as client,
    ):
        yield client


def test_a_network_does_not_wait_for_ever_for_one_whose_driver_hangs() -> None:
    inside, released = threading.Event(), threading.Event()

    def hang(name: str, network: Any, settings: DeviceSettings, **options: Any) -> Backend:
        inside.set()
        assert released.wait(60)
        return open_backend(name, network, settings, **options)

    loader = Loader(devices("random"), open_backend=hang, patience_s=0.01)
    first = threading.Thread(target=loader.load, args=(None,))
    first.start()
    assert inside.wait(60)
    assert loader.doing().startswith("opening the random backend, for ")
    with pytest.raises(BackendError, match=r"the random backend, for \d+ s"):
        loader.load(None)
    condition = LifeCycle(Mock(), Mock(), Mock(), Mock()).condition([], True, 0.0, loader.doing())
    assert (condition.state, condition.ready) == ("loading", False)
    assert "opening the random backend" in condition.reason
    released.set()
    first.join()
    assert not loader.doing()
    assert loader.load(None).info.name == "random-2"


class TimedDevice(EchoBackend):
    """Names its device and counts the batches inside all devices of `inside`."""

    def __init__(self, device: str, inside: list[int]) -> None:
        super().__init__()
        self.device, self.most, self._inside = device, 0, inside

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        self._inside.append(1)
        self.most = max(self.most, len(self._inside))
        try:
            return super().evaluate(batch)
        finally:
            self._inside.pop()


@pytest.mark.parametrize("fails", [False, True])
def test_loader_opens_networks_together_and_measures_each_alone(fails: bool) -> None:
    together, opened = threading.Barrier(3), list[EchoBackend]()

    def open_when_all_do(name: str, network: Any, settings: DeviceSettings, **options: Any) -> Backend:
        if together.wait(60) == 0 and fails:
            raise BackendError("no memory")
        opened.append(EchoBackend())
        return opened[-1]

    loader = Loader(devices("random"), open_backend=open_when_all_do)
    wanted = [(None, "", "")] * 3
    if fails:
        with pytest.raises(BackendError, match="no memory"):
            loader.load_all(wanted)
        assert all(backend.closed for backend in opened)
        assert not loader._served
    else:
        served = loader.load_all(wanted, taken=["echo"])
        assert [each.info.name for each in served] == ["echo-2", "echo-3", "echo-4"]


def test_loader_measures_each_kind_once_and_alone() -> None:
    names = ["fast", "slow", "fast", "fast"]
    meeting = threading.Barrier(len(names), timeout=60)
    opened: dict[str, TimedDevice] = {}
    inside: list[int] = []

    def open_together(name: str, network: Any, settings: DeviceSettings, **options: Any) -> Backend:
        meeting.wait()
        assert not inside, "a curve is measured while another device opens"
        opened[name] = TimedDevice(names[int(name)], inside)
        return opened[name]

    loader = Loader(devices("0", "1", "2", "3"), open_backend=open_together)
    served = loader.load(None)
    in_order = [runner.backend for runner in served.runners]
    assert in_order == [opened[name] for name in "0123"]
    assert [bool(opened[name].sizes) for name in "0123"] == [True, True, False, False]
    assert {each.most for each in opened.values()} == {0, 1}
    curves = [runner.model.curve() for runner in served.runners]
    assert curves[0] == curves[2] == curves[3]
    served.runners[0].model.observe(1, 1000.0)
    assert served.runners[2].model.observations == 0


def test_loader_measures_nothing_on_a_device_that_serves() -> None:
    opened = [EchoBackend() for _ in range(3)]
    backends = iter(opened)
    loader = Loader(devices("echo"), open_backend=lambda *_, **__: next(backends))
    first, equal = loader.load(None).runners[0].model, loader.load(None).runners[0].model
    loader.serving = True
    larger = loader.load(NETWORKS[0]).runners[0].model
    assert [bool(each.sizes) for each in opened] == [True, False, False]
    assert equal.curve() == first.curve()
    assert larger.milliseconds(1) > first.milliseconds(1)
    assert not larger.known, "its times are measured in use"


def test_loader_closes_the_other_devices_when_one_does_not_open() -> None:
    opened: list[EchoBackend] = []

    def open_backend(name: str, network: Any, settings: DeviceSettings, **options: Any) -> Backend:
        if name == "broken":
            raise BackendError("no such device")
        opened.append(EchoBackend())
        return opened[-1]

    loader = Loader(devices("first", "broken", "last"), open_backend=open_backend)
    with pytest.raises(BackendError, match="no such device"):
        loader.load(None)
    assert [each.closed for each in opened] == [True, True]


@pytest.mark.integration
def test_networks_are_served_side_by_side_and_loaded_while_serving(tmp_path: Path) -> None:
    first, second = NETWORKS[0], NETWORKS[1]
    with serving(first, tmp_path) as client:
        loaded = client.load(str(second))
        with pytest.raises(LoadFailed) as failed:
            client.load(__file__)
        assert str(failed.value).count(__file__) == 1
        batch = probe_batch(7)
        for path, name in ((first, client.networks[0].name), (second, loaded.name)):
            with open_backend("reference", load_network(path)) as reference:
                wanted = reference.evaluate(batch)
            got = client.evaluate(batch, network=name)
            np.testing.assert_allclose(got.logits, wanted.logits, atol=1e-3)
            np.testing.assert_allclose(got.wdl, wanted.wdl, atol=1e-3)
        client.unload(loaded.name)
        assert [network.name for network in client.status().networks] == [client.networks[0].name]


def test_backends_are_written_with_their_options() -> None:
    assert parse_backend("onnx") == ("onnx", {})
    assert parse_backend("onnx:int8=true,device=1,scale=0.5,kind=a") == (
        "onnx",
        {"int8": True, "device": 1, "scale": 0.5, "kind": "a"},
    )
    with pytest.raises(ValueError, match="key=value"):
        parse_backend("onnx:int8")
    with pytest.raises(ValueError, match="provider is given twice"):
        parse_backend("onnx:provider=cpu,provider=cuda")
    with pytest.raises(ValueError, match="threads is an option of the engine"):
        parse_backend("onnx:threads=2")


@pytest.mark.parametrize(
    ("backends", "gpu", "shipped"),
    [
        (["onnx:int8=true"], True, SHIPPED_NETWORK),
        (["auto"], False, SHIPPED_NETWORK),
        (["auto"], True, SHIPPED_GPU_NETWORK),
        (["gpu:device=0+1"], False, SHIPPED_GPU_NETWORK),
        (["onnx", "gpu"], True, SHIPPED_GPU_NETWORK),
    ],
)
def test_default_network_depends_on_the_devices(
    monkeypatch: pytest.MonkeyPatch, backends: list[str], gpu: bool, shipped: Path
) -> None:
    monkeypatch.setattr("evaluator.backends.unavailable", lambda name: None if gpu else "no GPU")
    assert shipped_network(backends) == shipped


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[EvaluatorClient, Path]]:
    """A client of a process that serves a copy of a network, and the copy."""
    path = tmp_path / "net.pb.gz"
    path.write_bytes(NETWORKS[0].read_bytes())
    with serving(path, tmp_path) as client:
        yield client, path


def logits_of(path: Path) -> np.ndarray[Any, Any]:
    with open_backend("reference", load_network(path)) as reference:
        return reference.evaluate(probe_batch(7)).logits


@pytest.mark.integration
def test_served_file_is_not_loaded_again(served: tuple[EvaluatorClient, Path], tmp_path: Path) -> None:
    client, path = served
    copy = tmp_path / "copy.pb.gz"
    copy.write_bytes(path.read_bytes())
    assert client.load(str(copy)) == client.status().networks[0]
    assert len(client.status().networks) == 1
    assert client.load(str(NETWORKS[1])).name == client.load(str(NETWORKS[1])).name != client.network.name
    assert len(client.status().networks) == 2


@pytest.mark.integration
def test_changed_file_is_reloaded_without_a_lost_request(
    served: tuple[EvaluatorClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "FEATURES", ())  # a client that is not told of other networks
    client, path = served
    other = next(
        each
        for each in NETWORKS[1:]
        if load_network(each).input_format == load_network(path).input_format
        and not np.allclose(logits_of(each), logits_of(path), atol=0.1)
    )
    before, after = logits_of(path), logits_of(other)
    old = client.network
    reply = client.reload()
    assert (reply.changed, [network.name for network in reply.networks]) == ((), [client.network.name])
    path.write_bytes(other.read_bytes())
    with EvaluatorClient(client.address, timeout=60.0) as busy:
        stop = threading.Event()
        seen: list[np.ndarray[Any, Any]] = []

        def ask() -> None:
            while not stop.is_set():
                seen.append(busy.evaluate(probe_batch(7)).logits)
            seen.append(busy.evaluate(probe_batch(7)).logits)

        asking = threading.Thread(target=ask)
        asking.start()
        reply = client.reload(client.network.name)
        stop.set()
        asking.join()
    assert reply.changed == (old.name,)
    assert reply.networks[0].content_hash != old.content_hash
    assert all(np.allclose(each, before, atol=1e-3) or np.allclose(each, after, atol=1e-3) for each in seen)
    np.testing.assert_allclose(seen[-1], after, atol=1e-3)
    assert len(client.status().networks) == 1

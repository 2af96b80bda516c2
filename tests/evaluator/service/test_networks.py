# SPDX-License-Identifier: GPL-3.0-or-later
"""Several networks in one service: found by name, loaded, unloaded, reloaded, and the default among them."""

import threading
from pathlib import Path

import pytest

from evaluator.devices.served_network import ServedNetwork
from protocol.errors import BadRequest, UnknownNetwork
from protocol.wire import messages
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import Harness, received, running, serving
from tests.paths import DATA


def test_an_unloaded_network_is_gone_and_its_device_freed(tmp_path: Path) -> None:
    with serving(tmp_path, networks=2) as (harness, client):
        client.unload("echo-2")
        assert harness.backends[1].closed
        with pytest.raises(UnknownNetwork):
            client.evaluate(numbered_batch(1), network="echo-2")
        with pytest.raises(BadRequest, match="last network"):
            client.unload("echo")


def test_default_is_that_of_hello_until_unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "FEATURES", ())  # A client of before follows no notice.
    with running(tmp_path, networks=2) as harness:
        before, admin = harness.client(), harness.client()
        assert admin.alias("default", "echo-2") == "echo-2"
        after = harness.client()
        assert (before.network.name, after.network.name) == ("echo", "echo-2")
        for backend in harness.backends:
            backend.sizes.clear()
        before.evaluate(numbered_batch(3), network="")
        after.evaluate(numbered_batch(4), network="")
        assert [backend.sizes for backend in harness.backends] == [[3], [4]]
        admin.unload("echo")
        with pytest.raises(UnknownNetwork, match="default network was unloaded"):
            before.evaluate(numbered_batch(1), network="")
        after.evaluate(numbered_batch(5), network="")
        admin.alias("default", "")
        for unnamed in ("", "default"):
            with pytest.raises(UnknownNetwork):
                before.evaluate(numbered_batch(1), network=unnamed)
        with pytest.raises(UnknownNetwork, match="echo-2"):
            harness.client()
        assert harness.client(network="echo-2").evaluate(numbered_batch(3)) is not None


def test_an_alias_is_a_further_name(tmp_path: Path) -> None:
    with serving(tmp_path, networks=2) as (harness, client):
        client.alias("best", "echo-2")
        assert harness.client(network="best").network.name == "echo-2"
        harness.backends[1].sizes.clear()
        client.evaluate(numbered_batch(3), network="best")
        assert harness.backends[1].sizes == [3]
        assert client.status().aliases == {"default": "echo", "best": "echo-2"}
        client.alias("best", "echo")
        assert client.status().aliases["best"] == "echo"
        with pytest.raises(BadRequest, match="named"):
            client.alias("echo", "echo-2")
        with pytest.raises(UnknownNetwork):
            client.alias("best", "nothing like it")
        client.alias("best", "")
        with pytest.raises(UnknownNetwork):
            client.evaluate(numbered_batch(1), network="best")


def test_unload_waits_for_former_requests_and_reload_does_not(harness: Harness, tmp_path: Path) -> None:
    contents = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))[:2]
    path = tmp_path / "changing.pb.gz"
    path.write_bytes(contents[0].read_bytes())
    client, admin = harness.client(), harness.client()
    admin.load(str(path))
    harness.backends[1].hold()
    client.submit(numbered_batch(3), network="changing")
    harness.backends[1].wait_entered()
    for content in (contents[1], contents[0]):
        path.write_bytes(content.read_bytes())
        assert admin.reload("changing")
    assert not harness.backends[1].closed
    harness.backends[1].gate.set()
    assert len(received(client).result()) == 3
    admin.unload("changing")
    assert all(backend.closed for backend in harness.backends[1:])


def test_a_network_that_is_being_reloaded_is_loaded_once(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who asks for its new content before it is served."""
    before, after = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))[:2]
    path = tmp_path / "changing.pb.gz"
    path.write_bytes(before.read_bytes())
    networks, dispatcher = harness.service.record.networks, harness.service.record.dispatcher
    client, other, third = harness.client(), harness.client(), harness.client()
    client.load(str(path))
    reloading, go = threading.Event(), threading.Event()
    add = dispatcher.add

    def added(network: ServedNetwork) -> None:
        if threading.current_thread().name == "reload":
            reloading.set()
            assert go.wait(WAIT_S)
        else:
            go.set()  # Too early: this one is there, and the reload has not put it into its place.
        add(network)

    class Noticed:
        lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread().name == "load":
                go.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(networks, "_changing", Noticed(), raising=False)
    monkeypatch.setattr(dispatcher, "add", added)
    path.write_bytes(after.read_bytes())
    threads = [threading.Thread(target=client.reload, args=("changing",))]
    threads[0].start()
    assert reloading.wait(WAIT_S)
    threads.append(threading.Thread(target=other.load, args=(str(after),)))
    threads[1].start()
    for thread in threads:
        thread.join(WAIT_S)
    names = [network.name for network in third.status().networks]
    assert sorted(names) == ["changing", "echo"]
    third.unload("changing")
    assert [network.name for network in third.status().networks] == ["echo"]

# SPDX-License-Identifier: GPL-3.0-or-later
"""Which network answered, and what clients hear of changed networks."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from evaluator.service.connections import hub_sockets
from evaluator.service.fast_path import IN_A_ROW
from protocol import EvaluatorClient
from protocol.errors import NetworkChanged, UnknownNetwork
from protocol.wire.codec import decode_reply, encode, encode_evaluate
from protocol.wire.messages import FEATURES, Error, Hello, Result, Welcome
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import Harness, foreign_client, running, serving
from tests.evaluator.service.leasing import LeasingBackend
from tests.paths import DATA

FIRST, SECOND = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))[:2]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Harness, EvaluatorClient, Path]]:
    """A service with a network `served`, of a file that may be replaced, as its default."""
    path = tmp_path / "served.pb.gz"
    shutil.copy(FIRST, path)
    with running(tmp_path) as harness:
        admin = harness.client()
        admin.load(str(path))
        admin.alias("default", "served")
        yield harness, admin, path


def say_hello(socket: zmq.Socket[bytes], features: tuple[str, ...]) -> dict[str, Any]:
    """Say hello and return the welcome's header."""
    header = {"type": "hello", "id": 1, "versions": [1]} | ({"features": features} if features else {})
    socket.send(msgpack.packb(header))
    welcome: dict[str, Any] = msgpack.unpackb(socket.recv())
    return welcome


def ask(socket: zmq.Socket[bytes], identity: int, network: str = "") -> None:
    """Send an evaluate of one position."""
    frames: list[Any] = encode_evaluate(identity, numbered_batch(1), "play", None, network)
    socket.send_multipart(frames)


def reload(admin: EvaluatorClient, path: Path) -> None:
    """Put another network into the place of a file and have the service look at it."""
    shutil.copy(SECOND, path)
    assert admin.reload("served").changed == ("served",)


def test_a_result_names_the_network_that_computed_it(service: tuple[Harness, EvaluatorClient, Path]) -> None:
    harness, admin, path = service
    first = admin.network.content_hash
    with foreign_client(harness.address) as socket:
        assert say_hello(socket, FEATURES)["features"] == ["networks"]
        ask(socket, 2)
        assert msgpack.unpackb(socket.recv_multipart()[0])["network"] == first
        reload(admin, path)
        notice = decode_reply(socket.recv_multipart())
        assert isinstance(notice, Welcome) and notice.id == 0 and notice.default == "served"
        second = {network.name: network.content_hash for network in notice.networks}["served"]
        ask(socket, 3)
        assert msgpack.unpackb(socket.recv_multipart()[0])["network"] == second != first


def test_client_without_features_gets_the_usual(service: tuple[Harness, EvaluatorClient, Path]) -> None:
    harness, admin, path = service
    with foreign_client(harness.address) as socket:
        assert say_hello(socket, ())["features"] == []
        reload(admin, path)
        admin.alias("default", "echo")
        ask(socket, 2)
        result = msgpack.unpackb(socket.recv_multipart()[0])
        assert (result["type"], result["id"], "network" in result) == ("result", 2, False)
        admin.unload("served")
        ask(socket, 3)
        refusal = decode_reply(socket.recv_multipart())
        assert isinstance(refusal, Error) and refusal.code == UnknownNetwork.code


@pytest.mark.parametrize("change", ["load", "alias", "unload", "reload"])
def test_a_follower_hears_of_each_change(service: tuple[Harness, EvaluatorClient, Path], change: str) -> None:
    harness, admin, path = service
    client = harness.client()
    if change == "load":
        admin.load(str(SECOND))
    elif change == "alias":
        admin.alias("default", "echo")
    elif change == "unload":
        admin.unload("served")
    else:
        reload(admin, path)
    while not client.notices:
        client.take_notices()
    assert [network.identity for network in client.networks] == [
        network.identity for network in admin.status().networks
    ]
    expected = {"load": "served", "alias": "echo", "unload": "echo", "reload": "served"}[change]
    assert client.network.name == expected
    client.evaluate(numbered_batch(1))


def test_a_client_bound_to_an_alias_follows_it(service: tuple[Harness, EvaluatorClient, Path]) -> None:
    harness, admin, _ = service
    admin.alias("best", "served")
    client, by_name = harness.client(network="best"), harness.client(network="served")
    admin.alias("best", "echo")
    admin.alias("default", "echo")
    for each, name in ((client, "echo"), (by_name, "served")):
        while each.notices < 2:
            each.take_notices()
        assert each.network.name == name


def test_requests_for_a_gone_network_end_as_changed(service: tuple[Harness, EvaluatorClient, Path]) -> None:
    """They were sent before the client could read the notice."""
    harness, admin, path = service
    client = harness.client()
    reload(admin, path)
    by_another = client.submit(numbered_batch(1))
    admin.alias("default", "echo")
    admin.unload("served")
    by_none = client.submit(numbered_batch(1))
    errors = {}
    while client.in_flight:
        done = client.receive(1000 * WAIT_S)
        if done is not None:
            errors[done.id] = done.error
    assert {*map(type, errors.values())} == {NetworkChanged} and {*errors} == {by_another, by_none}
    assert client.network.name == "echo"


@pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="there is no such path here")
def test_results_of_the_fast_path_name_their_network(tmp_path: Path) -> None:
    with serving(tmp_path, private=True, make=lambda name: LeasingBackend()) as (harness, client):
        backend = harness.backend
        assert isinstance(backend, LeasingBackend)
        for _ in range(3 * IN_A_ROW):
            identity = client.submit(numbered_batch(1))
            connection = client._connected()
            frames = connection.receive(None)
            assert frames is not None
            result = decode_reply(frames)
            assert isinstance(result, Result)
            assert (result.id, result.network) == (identity, client.network.content_hash)
            client._in_flight.clear()
        assert backend.direct, "some went the fast way"


def test_a_hello_of_before_has_no_features() -> None:
    """Its bytes are those of version 1, and a result without a network's are too."""
    old = bytes.fromhex("83a474797065a568656c6c6fa2696401a876657273696f6e739101")
    assert msgpack.unpackb(old) == {"type": "hello", "id": 1, "versions": [1]}
    assert msgpack.unpackb(encode(Hello(1))[0]).get("features") == []

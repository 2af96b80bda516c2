# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/reference/protocol.md promises, or threatens, to clients that do not speak as ours does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from evaluator.service.connections import hub_sockets
from protocol.wire.codec import decode_reply, encode, max_message_bytes
from protocol.wire.messages import Alias, Aliased, Error, Evaluate, Hello, Load, Result, Welcome
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import Harness, foreign_client, running


@pytest.fixture(params=["open", "private"])
def harness(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A service that anybody may connect to, or one as an engine starts it for itself."""
    private = request.param == "private"
    if private and not hub_sockets.AVAILABLE:
        pytest.skip("such a service is like any other on this system")
    with running(tmp_path, networks=2, max_request=16, private=private) as harness:
        yield harness


@pytest.fixture
def dealer(harness: Harness) -> Iterator[zmq.Socket[bytes]]:
    with foreign_client(harness.address) as socket:
        yield socket


def ask(socket: zmq.Socket[bytes], message: Any) -> Any:
    return ask_raw(socket, *encode(message))


def ask_raw(socket: zmq.Socket[bytes], *frames: Any) -> Any:
    socket.send_multipart(frames)
    return decode_reply(socket.recv_multipart())


def test_evaluations_are_taken_without_a_hello(dealer: zmq.Socket[bytes]) -> None:
    assert isinstance(ask(dealer, Evaluate(1, numbered_batch(2))), Result)


def test_another_hello_binds_the_default_anew(dealer: zmq.Socket[bytes]) -> None:
    first = ask(dealer, Hello(1))
    other = first.networks[1].name
    assert isinstance(ask(dealer, Alias(2, "default", other)), Aliased)
    second = ask(dealer, Hello(3))
    assert isinstance(second, Welcome)
    assert (first.default, second.default) == (first.networks[0].name, other)


def test_a_name_commands_nothing_where_it_is_shown(harness: Harness, dealer: zmq.Socket[bytes]) -> None:
    name = "engine\x1b]0;gone\x07\n\u202e2026 ERROR \u00e9\u2654"
    ask(dealer, Hello(1, client=name))
    names = [client["name"] for client in harness.client().clients()]
    assert "engine?]0;gone???2026 ERROR \u00e9\u2654" in names


def test_a_req_socket_gets_an_error_that_it_cannot_see(harness: Harness, dealer: zmq.Socket[bytes]) -> None:
    """What a REQ socket sends, by a DEALER, which sees the answer."""
    answer = ask_raw(dealer, b"", *encode(Hello(1)))
    assert (type(answer), answer.id, answer.code) == (Error, 0, "bad_request")


def test_keys_that_are_bytes_are_refused(dealer: zmq.Socket[bytes]) -> None:
    answer = ask_raw(dealer, msgpack.packb({b"type": b"ping", b"id": 1}))
    assert (answer.id, answer.code) == (0, "bad_request")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Hello(1, client="x" * 257), "client"),
        (Hello(1, versions=(1,) * 65), "versions"),
        (Load(1, "net", policy_head="x" * 257), "policy_head"),
        (Load(1, "net", value_head="x" * 257), "value_head"),
        (Load(1, "x" * 32769), "header"),
        (Alias(1, "x" * 257, "net"), "alias"),
        (Alias(1, "default", "x" * 1025), "network"),
        (Evaluate(1, numbered_batch(1), network="x" * 1025), "network"),
    ],
)
def test_texts_beyond_limit_are_refused_by_name(dealer: zmq.Socket[bytes], message: Any, field: str) -> None:
    answer = ask(dealer, message)
    assert answer.code == "bad_request"
    assert answer.message.startswith(field)


def test_a_frame_beyond_the_limit_closes_the_connection(harness: Harness) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.reconnect_ivl = -1
        monitor = socket.get_monitor_socket(int(zmq.Event.DISCONNECTED))
        try:
            socket.connect(harness.address)
            socket.send(bytes(max_message_bytes(16) + 65536 + 1))
            assert monitor.poll(int(1000 * WAIT_S))
        finally:
            socket.disable_monitor()
            monitor.close(0)
    with harness.client() as other:
        assert other.ping() >= 0


def test_another_run_is_another_instance(harness: Harness, dealer: zmq.Socket[bytes], tmp_path: Path) -> None:
    welcome = ask(dealer, Hello(1))
    assert welcome.instance
    assert ask(dealer, Evaluate(2, numbered_batch(1))).instance == welcome.instance
    with running(tmp_path / "another") as another:
        assert another.client().instance not in ("", welcome.instance)
    assert harness.client().instance == welcome.instance

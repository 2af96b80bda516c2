# SPDX-License-Identifier: GPL-3.0-or-later
"""A service as an engine starts it for itself: at an ipc address, without ZeroMQ's threads."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluator.service.connections import hub_sockets
from evaluator.service.connections.endpoints import AddressError
from evaluator.service.connections.limits import ConnectionLimits
from protocol import EvaluatorClient
from protocol.connections.unix import UnixConnection
from protocol.errors import EvaluatorLost
from protocol.wire.codec import decode_reply, encode_evaluate
from tests.evaluator.service.echo import WAIT_S, EchoBackend, expected, numbered_batch, same
from tests.evaluator.service.harness import Harness, answers, received, running, serving

pytestmark = pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="such a service is like any other here")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    limits = ConnectionLimits(connections=20, client_bytes=1)
    with running(tmp_path, private=True, connections=limits, max_request=64) as harness:
        yield harness


def test_no_thread_stands_between(tmp_path: Path) -> None:
    before = set(Path("/proc/self/task").iterdir())
    with serving(tmp_path, private=True) as (_, client):
        assert isinstance(client._connection, UnixConnection)
        assert answers(client, 40)
        since = set(Path("/proc/self/task").iterdir()) - before
        names = {Path(task, "comm").read_text().strip() for task in since}
        assert not [name for name in names if name.startswith("ZMQbg")]
        assert "stream" in names


def test_batches_can_be_sent_and_received_by_the_clients_socket(harness: Harness) -> None:
    """Somebody else does that, and the client goes on with what he has left."""
    client, batch = harness.client(), numbered_batch(3)
    first = client.submit(batch)
    stream = client.stream
    assert stream is not None
    second, third = client.next_id, client.next_id + 1
    for identity in (second, third):
        frames: list[Any] = encode_evaluate(identity, batch, "play", None, client.network.name)
        assert stream.send(frames)
    answers = [stream.receive(int(1000 * WAIT_S)) for _ in (first, second)]
    done = [decode_reply(answer).id for answer in answers if answer is not None]
    (left,) = {first, second, third} - set(done)
    heard_at = client.heard_at
    in_flight = {identity: (3, len(batch.moves), client.network) for identity in {left} - {first}}
    client.exchanged(done, in_flight, third + 1, heard=True)
    assert (client.in_flight, client.next_id) == (1, third + 1)
    assert client.heard_at > heard_at
    completed = received(client)
    assert completed.id == left
    assert same(completed.result(), expected(batch))
    assert same(client.evaluate(batch), expected(batch))


def test_socket_with_received_answers_is_not_given_away(harness: Harness) -> None:
    client = harness.client()

    def is_given() -> bool:
        return client.stream is not None

    client.submit(numbered_batch(1))
    assert is_given()
    client.evaluate(numbered_batch(2))  # The first one's answer came before.
    assert not is_given()
    client.receive()
    assert is_given()
    client.close()
    assert not is_given()


def test_requests_larger_than_a_socket_takes_are_answered(tmp_path: Path) -> None:
    with serving(tmp_path, private=True, make=lambda name: EchoBackend(64)) as (_, client):
        batches = {client.submit(batch): batch for batch in (numbered_batch(1024, seed=i) for i in range(8))}
        while batches:
            completed = received(client)
            assert same(completed.result(), expected(batches.pop(completed.id)))


def test_client_is_forgotten_when_it_leaves_with_requests(harness: Harness) -> None:
    harness.backend.hold()
    goes, stays = harness.client(), harness.client()
    goes.submit(numbered_batch(5))
    harness.backend.wait_entered()
    goes.submit(numbered_batch(7))
    goes.close()
    while len(stays.clients()) > 1:
        pass
    harness.backend.gate.set()
    assert answers(stays, 2)
    assert 7 not in harness.backend.sizes


def test_excess_client_gets_the_reason_when_all_others_are_known(harness: Harness) -> None:
    clients = [harness.client() for _ in range(20)]
    with pytest.raises(EvaluatorLost, match="too many connections"):
        harness.client()
    assert all(client.ping() >= 0 for client in clients)


def test_it_listens_at_one_address_without_keys(tmp_path: Path) -> None:
    with (
        pytest.raises(AddressError, match="one address"),
        running(tmp_path, private=True, further=[f"ipc://{tmp_path / 'other'}"]),
    ):
        pass


def test_another_program_at_the_address_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "other"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            made, _ = listener.accept()
            made.sendall(b"220 mail.example ESMTP\r\n")
            made.close()

        thread = threading.Thread(target=serve)
        thread.start()
        connection = UnixConnection(f"ipc://{path}")
        with pytest.raises(EvaluatorLost, match="is not an evaluator"):
            connection.receive(None)
        thread.join()
        connection.close()


@pytest.mark.timeout(60)
def test_a_program_that_accepts_no_connections_is_not_awaited(tmp_path: Path) -> None:
    """A service that stands still has room for some connections that nobody takes, and then for none."""
    path = str(tmp_path / "stopped")
    with contextlib.ExitStack() as stack:
        stopped = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        stopped.bind(path)
        stopped.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                waiting.setblocking(False)
                waiting.connect(path)
        with pytest.raises(EvaluatorLost, match="takes no connections"):
            EvaluatorClient(f"ipc://{path}", timeout=WAIT_S)

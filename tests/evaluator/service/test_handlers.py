# SPDX-License-Identifier: GPL-3.0-or-later
"""What single messages of clients do, on real sockets: hello, evaluate, cancel, status, and what is none."""

import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest

from protocol import EvaluatorClient
from protocol.connections.multipart import send
from protocol.errors import DeadlineExceeded, NotReady, TooLarge, UnknownNetwork
from protocol.wire.codec import decode_reply, encode
from protocol.wire.messages import Evaluate, Hello, Welcome
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import (
    Harness,
    answers,
    foreign_client,
    made_after,
    received,
    running,
    serving,
)


def raw_exchange(address: str, frames: list[bytes]) -> dict[str, object]:
    """Send frames as no EvaluatorClient would, and return the header of the answer."""
    with foreign_client(address) as dealer:
        dealer.send_multipart(frames)
        header = msgpack.unpackb(dealer.recv_multipart()[0])
        assert isinstance(header, dict)
        return header


def test_welcome_describes_the_networks(harness: Harness) -> None:
    client = harness.client(name="test")
    assert client.version == 1
    assert client.network.name == "echo"
    assert client.network.recommended_batch == client.recommended_batch >= 1
    assert client.curve[0][0] == 1
    assert client.max_batch == 4096


def test_a_version_that_nobody_speaks_is_refused_by_name(harness: Harness) -> None:
    reply = raw_exchange(harness.address, [msgpack.packb({"type": "hello", "id": 1, "versions": [7, 8]})])
    assert (reply["type"], reply["code"], reply["id"]) == ("error", "unsupported_version", 1)


def test_a_newer_client_that_also_speaks_version_1_is_welcome(harness: Harness) -> None:
    reply = raw_exchange(harness.address, [msgpack.packb({"type": "hello", "id": 1, "versions": [1, 2]})])
    assert (reply["type"], reply["version"]) == ("welcome", 1)


def test_before_the_networks_are_there_evaluations_are_not_ready(tmp_path: Path) -> None:
    gate = threading.Event()

    def ask(address: str) -> None:
        with EvaluatorClient(address, timeout=WAIT_S, handshake=False) as client:
            assert client.status().state == "loading"
            client.max_batch = 64
            with pytest.raises(NotReady):
                client.evaluate(numbered_batch(1), network="")
            with pytest.raises(NotReady):
                client.load("")
        gate.set()

    with running(tmp_path, make=made_after(gate), before_ready=ask) as harness:
        assert harness.client().status().state == "ready"


def test_one_hello_of_a_client_waits_for_the_networks(tmp_path: Path) -> None:
    """Hundreds of thousands would hold up everybody when the networks are there."""
    gate = threading.Event()
    answers: list[Any] = []

    def ask(address: str) -> None:
        with foreign_client(address) as dealer:
            for identity in (1, 2, 3):
                send(dealer, encode(Hello(identity)))
            answers.extend(decode_reply(dealer.recv_multipart()) for _ in range(2))
            gate.set()
            answers.append(decode_reply(dealer.recv_multipart()))
            send(dealer, encode(Hello(4)))
            answers.append(decode_reply(dealer.recv_multipart()))

    with running(tmp_path, make=made_after(gate), before_ready=ask):
        refused = [(answer.id, getattr(answer, "code", "")) for answer in answers[:2]]
        assert refused == [(2, "not_ready"), (3, "not_ready")]
        assert [answer.id for answer in answers[2:] if isinstance(answer, Welcome)] == [1, 4]


def test_a_completion_says_when_and_in_what_it_rode(harness: Harness) -> None:
    client = harness.client()
    identity = client.submit(numbered_batch(5))
    completed = received(client)
    assert completed.id == identity
    assert completed.batch_rode == 5
    assert completed.queue_ms >= 0
    assert completed.compute_ms > 0
    assert client.receive(0) is None


def test_blocking_evaluate_leaves_other_batches_to_receive(harness: Harness) -> None:
    client = harness.client()
    first = client.submit(numbered_batch(2))
    assert answers(client, 3)
    completed = received(client)
    assert completed.id == first


def test_a_deadline_that_has_passed_on_arrival_is_an_error(harness: Harness) -> None:
    with pytest.raises(DeadlineExceeded):
        harness.client().evaluate(numbered_batch(1), deadline_ms=-1)


def test_a_cancelled_request_is_not_run(harness: Harness) -> None:
    client = harness.client()
    harness.backend.hold()
    first = client.submit(numbered_batch(4))
    harness.backend.wait_entered()
    second = client.submit(numbered_batch(6))
    client.cancel(second)
    completed = received(client)
    assert completed.id == second
    assert completed.cancelled
    harness.backend.gate.set()
    done = received(client)
    assert done.id == first
    assert harness.backend.sizes == [4]
    client.cancel(first)
    assert client.status().metrics["cancelled"] == 1


def test_a_request_that_runs_is_cancelled_at_once(harness: Harness) -> None:
    client = harness.client()
    harness.backend.hold()
    identity = client.submit(numbered_batch(4))
    harness.backend.wait_entered()
    client.cancel(identity)
    completed = received(client)
    assert completed.cancelled
    harness.backend.gate.set()
    assert answers(client, 3)


def test_too_many_positions_are_refused_on_both_sides(tmp_path: Path) -> None:
    with serving(tmp_path, max_request=16) as (_, client):
        with pytest.raises(TooLarge):
            client.submit(numbered_batch(17))
        client.max_batch = 1000
        with pytest.raises(TooLarge):
            client.evaluate(numbered_batch(17))


def test_an_unknown_network_is_refused_with_the_known_ones(harness: Harness) -> None:
    with pytest.raises(UnknownNetwork, match="echo"):
        harness.client().evaluate(numbered_batch(1), network="nothing like it")
    with pytest.raises(UnknownNetwork, match="echo"):
        harness.client(network="nothing like it")


def test_an_id_may_not_be_in_flight_twice(harness: Harness) -> None:
    harness.backend.hold()
    with foreign_client(harness.address) as dealer:
        for _ in range(2):
            send(dealer, encode(Evaluate(5, numbered_batch(1))))
        # Another code than any failure of the request that goes on: its own answer comes, too.
        assert msgpack.unpackb(dealer.recv_multipart()[0])["code"] == "duplicate_id"
        harness.backend.gate.set()
        answer = msgpack.unpackb(dealer.recv_multipart()[0])
        assert (answer["type"], answer["id"]) == ("result", 5)


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\xc1"],
        [b"hello"],
        [msgpack.packb({"type": "evaluate", "id": 1})],
        [msgpack.packb({"type": "dance", "id": 1})],
        [msgpack.packb([1, 2, 3]), b"", b""],
        [msgpack.packb({"id": 2**63, "type": "ping"})],
        [b"\x00" * 100_000],
    ],
    ids=["empty", "invalid", "text", "no frames", "unknown", "list", "huge id", "huge header"],
)
def test_a_broken_message_gets_an_error_and_disturbs_nobody(harness: Harness, frames: list[bytes]) -> None:
    client = harness.client()
    reply = raw_exchange(harness.address, frames)
    assert (reply["type"], reply["code"]) == ("error", "bad_request")
    assert answers(client, 2)
    assert client.status().metrics["bad_messages"] == 1


def test_status_counts_by_class(harness: Harness) -> None:
    client = harness.client()
    client.evaluate(numbered_batch(3), priority="analysis")
    status = client.status()
    assert status.ready
    assert not status.draining
    assert status.metrics["classes"]["analysis"] == {"requests": 1, "positions": 3}
    assert status.metrics["batch_size"]["4"] == 1

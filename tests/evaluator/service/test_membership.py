"""Clients that come and go: who is listed, whose connection is closed, what is left of those that vanish."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import msgpack
import pytest

from evaluator.service.connections import gate
from evaluator.service.connections.gate import ConnectionLimits
from tests.evaluator.service.harness import WAIT_S, Harness, expected, numbered_batch, running, same
from tests.evaluator.zmtp import connect, message


def test_who_is_connected_is_shown_by_name_and_who_is_gone_is_not(harness: Harness) -> None:
    admin, other = harness.client(name="admin"), harness.client(name="other")
    other.evaluate(numbered_batch(3))
    harness.backend.hold()
    other.submit(numbered_batch(5), priority="analysis")
    other.ping()
    found = {client["name"]: client for client in admin.clients()}
    assert set(found) == {"admin", "other"}
    assert found["other"]["requests"] == 1
    assert found["other"]["positions"] == 3
    assert found["other"]["requests_in_flight"] == 1
    assert found["other"]["positions_in_flight"] == {"play": 0, "analysis": 5, "selfplay": 0}
    assert "127.0.0.1" in found["other"]["address"]
    other.close()
    while len(admin.clients()) > 1:
        pass
    assert admin.status().metrics["clients"] == 1
    harness.backend.gate.set()


def test_a_client_that_vanishes_disturbs_nobody(harness: Harness) -> None:
    gone, client = harness.client(), harness.client()
    harness.backend.hold()
    gone.submit(numbered_batch(2))
    harness.backend.wait_entered()
    gone.submit(numbered_batch(2))
    gone.ping()
    gone.close()
    harness.backend.gate.set()
    batch = numbered_batch(9)
    assert same(client.evaluate(batch), expected(batch))


@pytest.mark.skipif(not gate.AVAILABLE, reason="this system has no gate, by which it is known")
def test_what_one_who_has_left_had_asked_for_is_not_worked_at(harness: Harness) -> None:
    """Thousands of messages may be on the way when a client goes."""
    other = harness.client()
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        goes_on.wait(WAIT_S)

    try:
        with connect(int(harness.address.rpartition(":")[2])) as gone:
            harness.service._call(hold)  # The I/O thread takes nothing in.
            assert holds.wait(WAIT_S)
            gone.sendall(message([msgpack.packb({"type": "status", "id": 1})]) * 50)
        while harness.service.state().connections > 1:
            pass
    finally:
        goes_on.set()
    for _ in range(100):  # By turns, one message of each client.
        other.ping()
    assert harness.service.metrics.dropped_replies.value == 0
    assert other.status().metrics["clients"] == 1


def test_connections_beyond_the_limit_are_closed_and_the_others_served(tmp_path: Path) -> None:
    with running(tmp_path, connections=ConnectionLimits(3)) as harness:
        client = harness.client()
        port = int(harness.address.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        closed = 0
        for connection in idle:
            connection.settimeout(0.0)
        while closed < 6:
            client.ping()
            closed = sum(ended(connection) for connection in idle)
        for connection in idle:
            connection.close()
        assert len(client.evaluate(numbered_batch(2))) == 2
        # Those that are gone do not count.
        while client.status().metrics["connections"] > 1:
            pass
        assert len(harness.client().evaluate(numbered_batch(2))) == 2


def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection that says nothing but its greeting."""
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    with running(tmp_path, address="tcp://[::1]:0") as harness:
        assert harness.address.startswith("tcp://[::1]:")
        assert len(harness.client().evaluate(numbered_batch(2))) == 2
        assert harness.client().clients()[0]["address"] == "::1"

# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that come and go: who is listed, whose connection is closed, what is left of those that vanish."""

import socket
import threading
from pathlib import Path
from unittest.mock import Mock

import msgpack
import pytest

from evaluator.service.connections import hub_sockets
from evaluator.service.connections.limits import ConnectionLimits
from evaluator.service.connections.transport import GONE, Arrived, Origin
from evaluator.service.sessions import ClientSession, Sessions
from protocol.errors import NotAllowed
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import Harness, running, serving
from tests.evaluator.zmtp import connect, message


class Clients:
    """Sessions with sockets whose connections are described by the messages."""

    def __init__(self) -> None:
        self.access, self.sockets, self.dropped = Mock(), Mock(), Mock()
        self.access.name.return_value = ""
        self.ended: list[int] = []
        self.sockets.connections.side_effect = lambda: iter([self.ended.pop() for _ in self.ended[:]])
        self.sockets.origin.side_effect = lambda arrived: arrived.source
        self.sessions = Sessions(self.access, self.sockets, self.dropped)

    def begin(self, client: bytes, descriptor: int, address: str = "127.0.0.1") -> ClientSession | None:
        arrived = Arrived(client, [], Origin(descriptor, address))
        return self.sessions.begin(arrived, include_disconnected=False)


def test_a_request_is_finished_once() -> None:
    clients = Clients()
    known, session = clients.sessions, clients.begin(b"client", 7)
    assert session is not None
    session.requests[1] = Mock(count=3, footprint=30), Mock()
    session.requests[2] = Mock(count=5, footprint=50), Mock()
    assert known.finish(b"client", 1, answered=True)
    assert not known.finish(b"client", 1, answered=True)
    assert not known.finish(b"nobody", 1, answered=True)
    assert known.finish(b"client", 2, answered=False)
    assert not known.busy
    assert (session.answered, session.positions) == (1, 3)


def test_a_descriptor_that_is_used_again_is_that_of_the_last_client() -> None:
    clients = Clients()
    clients.begin(b"gone", 7)
    clients.begin(b"new", 7)
    clients.sessions.forget(b"gone")
    clients.ended = [7]
    clients.sessions.forget_disconnected()
    assert clients.sessions.of(b"new") is None
    assert [call.args for call in clients.dropped.call_args_list] == [(b"gone",), (b"new",)]


def test_client_without_a_connection_is_found_by_identity() -> None:
    clients = Clients()
    session = clients.begin(b"client", -1)
    clients.ended = [-1]
    clients.sessions.forget_disconnected()
    assert clients.sessions.of(b"client") is session
    assert len(clients.sessions) == 1


def test_a_session_does_not_begin_for_a_disconnected_client() -> None:
    clients = Clients()
    assert clients.begin(b"gone", 7, GONE) is None
    assert len(clients.sessions) == 0


def test_a_session_does_not_begin_when_the_key_was_revoked() -> None:
    clients = Clients()
    clients.access.may_use.return_value = False
    with pytest.raises(NotAllowed):
        clients.begin(b"client", 7)
    clients.sockets.hang_up.assert_called_once_with(7)


def test_a_client_whose_key_is_revoked_is_disconnected() -> None:
    clients = Clients()
    clients.begin(b"client", 7)
    clients.access.may_use.return_value = False
    clients.sessions.reload_keys()
    clients.sockets.hang_up.assert_called_once_with(7)
    assert len(clients.sessions) == 0


# -- in a service ----------------------------------------------------------------------------------------


def test_clients_are_listed_by_name_until_they_leave(harness: Harness) -> None:
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


@pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="this system has no hub")
def test_requests_of_a_client_that_has_left_are_not_run(harness: Harness) -> None:
    """Thousands of messages may be on the way when a client goes."""
    other = harness.client()
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        goes_on.wait(WAIT_S)

    try:
        with connect(int(harness.address.rpartition(":")[2])) as gone:
            harness.service.record.call(hold)  # The I/O thread takes nothing in.
            assert holds.wait(WAIT_S)
            gone.sendall(message([msgpack.packb({"type": "status", "id": 1})]) * 50)
    finally:
        goes_on.set()
    for _ in range(100):  # By turns, one message of each client.
        other.ping()
    assert harness.service.record.metrics.dropped_replies.value <= 1
    assert other.status().metrics["clients"] == 1


def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    with serving(tmp_path, connections=ConnectionLimits(3)) as (harness, client):
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

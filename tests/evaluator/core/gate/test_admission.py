# SPDX-License-Identifier: GPL-3.0-or-later
"""Who makes room at the gate when there are too many connections, and what refused clients are told."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

if sys.platform != "linux":
    pytest.skip("there is a gate on Linux only", allow_module_level=True)

from evaluator._core import ByteAccount
from protocol.connections.handshake import TOO_MANY as TOO_MANY_EVENTS
from tests.evaluator.core.gate.test_gate import WAIT_S, Gated, gated, until
from tests.evaluator.zmtp import GREETING, READY, command, connect, connect_to, exactly, is_closed, message
from tests.paths import REPOSITORY

TOO_MANY = command(b"\x05ERROR\x03300")


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Gated]:
    """A gate for eight clients and two silent connections of each address."""
    with gated(tmp_path, connections=8, per_source=2) as it:
        yield it


def silent(port: int, source: str = "127.0.0.1", said: bytes = b"") -> socket.socket:
    """A connection from an address, which says that and nothing more."""
    made = socket.create_connection(("127.0.0.1", port), WAIT_S, (source, 0))
    made.sendall(said)
    return made


def client(it: Gated, *, administrator: bool = False) -> tuple[socket.socket, ByteAccount, bool]:
    """A client that has sent a message, and whether it was let in."""
    made = connect(it.port)
    made.sendall(message([b"hello"]))
    link = it.receive()[2]
    return made, link, link.establish(administrator=administrator)


def reason(connection: socket.socket) -> bytes:
    """What the gate has said behind its greeting when it closed a connection."""
    came = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            came += part
    assert came[:12] == GREETING[:12]
    return came[64:]


def is_open(connection: socket.socket) -> bool:
    """Whether it is not closed yet, reading what has come."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
        return False
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(WAIT_S)


def test_the_oldest_silent_connection_of_an_address_makes_room_for_its_third(full: Gated) -> None:
    first, second, third = (silent(full.port, "127.0.0.2") for _ in range(3))
    assert reason(first) == TOO_MANY
    until(lambda: full.gate.counts()["silent"] == 1)
    assert full.gate.news() == [("127.0.0.2", "silent")]
    assert is_open(second) and is_open(third)


def test_a_step_of_the_handshake_makes_a_connection_the_newest(full: Gated) -> None:
    first, second = silent(full.port), silent(full.port)
    first.sendall(GREETING)
    exactly(first, 64)  # So the gate has seen it.
    third = silent(full.port)
    assert reason(second) == TOO_MANY
    assert is_open(first) and is_open(third)


@pytest.mark.parametrize("said", [b"", GREETING[:10], GREETING, GREETING + command(READY)], ids=len)
def test_silence_after_any_step_makes_room(full: Gated, said: bytes) -> None:
    first = silent(full.port, said=said)
    exactly(first, min(len(said), 64))  # of the service's greeting
    others = [silent(full.port) for _ in range(2)]
    until(lambda: full.gate.counts()["silent"] == 1)
    assert is_closed(first)
    assert all(map(is_open, others))


def test_the_address_with_the_most_silent_connections_makes_room(full: Gated) -> None:
    alone = silent(full.port, "127.0.0.9")
    crowd = [silent(full.port, f"127.0.0.{2 + i // 2}") for i in range(7)]
    one_more = silent(full.port, "127.0.0.8")
    assert reason(crowd[0]) == TOO_MANY
    assert is_open(alone) and is_open(one_more) and all(map(is_open, crowd[1:]))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv4_address_is_the_same_source_by_an_ipv6_socket(tmp_path: Path) -> None:
    with gated(tmp_path, per_source=2) as it:
        listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        port = listener.getsockname()[1]
        it.gate.listen(listener.detach(), str(tmp_path / "router"), local=False, keys=False)
        first = silent(port)
        others = [silent(it.port), silent(port)]
        assert is_closed(first)
        by_ipv6 = [socket.create_connection(("::1", port), WAIT_S) for _ in range(3)]
        assert is_closed(by_ipv6[0])
        assert all(map(is_open, [*others, *by_ipv6[1:]]))


def test_clients_are_never_closed_for_silent_connections(full: Gated) -> None:
    clients = [client(full) for _ in range(8)]
    assert all(is_in for _, _, is_in in clients)
    for _ in range(100):
        silent(full.port, "127.0.0.2").close()
    held = [silent(full.port, f"127.0.0.{2 + i}") for i in range(20)]
    until(lambda: sum(map(is_open, held)) == 2)  # the reserve
    for made, _, _ in clients:
        made.sendall(message([b"again"]))
        assert full.receive()[1] == [b"again"]


def test_a_client_too_many_is_refused_and_an_administrator_let_in(full: Gated) -> None:
    clients = [client(full) for _ in range(8)]
    late, link, is_in = client(full)
    assert not is_in
    until(lambda: full.gate.counts()["connections"] == 1)
    assert is_open(late)  # to be told so by the service
    assert client(full, administrator=True)[2]
    clients[0][0].close()
    clients[1][0].close()
    until(lambda: link.establish(administrator=False))


def test_a_local_address_has_connections_of_its_own(full: Gated, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "public"))
    listener.listen()
    full.gate.listen(listener.detach(), str(tmp_path / "router"), local=True, keys=False)
    clients = [client(full) for _ in range(8)]
    crowd = [silent(full.port, f"127.0.0.{2 + i}") for i in range(4)]
    mine = [connect_to(str(tmp_path / "public")) for _ in range(8)]
    for each in mine:
        each.sendall(message([b"hello"]))
        assert full.receive()[2].establish(administrator=True)
    assert all(is_open(each) for each, _, _ in clients)
    until(lambda: sum(map(is_open, crowd)) == 2)


def test_a_client_of_zeromq_is_told_that_there_are_too_many(full: Gated, tmp_path: Path) -> None:
    """Its monitor reports ZAP's "temporary error"; with keys a command that comes too early."""
    public, secret = zmq.curve_keypair()
    own_public, own_secret = zmq.curve_keypair()
    curve = full.context.socket(zmq.ROUTER)
    curve.curve_server, curve.curve_secretkey = True, secret
    curve.bind(f"ipc://{tmp_path / 'curve'}")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    full.gate.listen(listener.detach(), str(tmp_path / "curve"), local=False, keys=True)
    for keys in (False, True):
        dealer = full.context.socket(zmq.DEALER)
        dealer.linger, dealer.reconnect_ivl = 0, -1
        if keys:
            dealer.curve_serverkey = public
            dealer.curve_publickey, dealer.curve_secretkey = own_public, own_secret
        monitor = dealer.get_monitor_socket(
            zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        )
        # The address of a proxy that hands over nothing until the gate has closed the connection.
        with socket.create_server(("127.0.0.1", 0)) as proxy:
            dealer.connect(f"tcp://127.0.0.1:{proxy.getsockname()[1]}")
            near = proxy.accept()[0]
            at = port if keys else full.port  # connections to two ports are accepted in any order
            far, *crowd = [silent(at) for _ in range(3)]
            with near, far:
                while part := far.recv(1 << 16):
                    near.sendall(part)
                assert monitor.poll(int(WAIT_S * 1000))
                event = parse_monitor_message(monitor.recv_multipart())
                assert (event["event"], event["value"]) == TOO_MANY_EVENTS[keys]
            for each in crowd:
                each.close()
        dealer.disable_monitor()
        monitor.close()


def test_a_key_that_is_let_in_is_not_silent(tmp_path: Path) -> None:
    """Strangers make room before a client that has authenticated, although that has sent no message."""
    public, secret = zmq.curve_keypair()
    own_public, own_secret = zmq.curve_keypair()
    with gated(tmp_path, connections=4, per_source=4) as it:
        it.router.curve_server, it.router.curve_secretkey = True, secret
        it.router.bind(f"ipc://{tmp_path / 'curve'}")
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        it.gate.listen(listener.detach(), str(tmp_path / "curve"), local=False, keys=True)
        dealer = it.context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.curve_serverkey = public
        dealer.curve_publickey, dealer.curve_secretkey = own_public, own_secret
        monitor = dealer.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED)
        dealer.connect(f"tcp://127.0.0.1:{port}")
        assert monitor.poll(int(WAIT_S * 1000))
        crowd = [silent(port, f"127.0.0.{2 + i}") for i in range(12)]
        until(lambda: it.gate.counts()["silent"] == 9)
        dealer.send(b"hello")
        assert it.receive()[1] == [b"hello"]
        assert sum(map(is_open, crowd)) == 3
        dealer.disable_monitor()
        monitor.close()


WITHOUT_DESCRIPTORS = """
import resource, socket, sys
from pathlib import Path
from tests.evaluator.core.gate.test_gate import gated, until

def one_is_left():
    try:
        open("/dev/null").close()
    except OSError:
        return False
    return True

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
with gated(folder, connections=1000, per_source=1000) as it:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "public"))
    listener.listen()
    it.gate.listen(listener.detach(), str(folder / "router"), local=True, keys=False)
    print(it.port, flush=True)
    for asked in sys.stdin:
        if asked == "let in\\n":
            print(it.receive()[2].establish(administrator=False), flush=True)
        else:
            until(lambda: it.gate.counts()[asked.strip()] >= 20)
            until(one_is_left)  # While connections arrive, the gate may hold the last one for a moment.
            print(len(it.gate), flush=True)
"""


@contextlib.contextmanager
def without_descriptors(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A gate in a process that may have 160 descriptors, and its port."""
    child = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert child.stdout is not None
    try:
        yield child, int(child.stdout.readline())
    finally:
        child.communicate(timeout=WAIT_S)


def told(child: subprocess.Popen[str], word: str) -> str:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{word}\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


def test_without_descriptors_silent_connections_make_room(tmp_path: Path) -> None:
    with without_descriptors(tmp_path) as (child, port):
        crowd = [silent(port) for _ in range(100)]
        assert 1 < int(told(child, "silent")) < 40
        with connect(port) as newcomer:
            newcomer.sendall(message([b"hello"]))
            assert told(child, "let in") == "True"
        for each in crowd:
            each.close()


def test_without_descriptors_clients_are_refused_but_by_ipc(tmp_path: Path) -> None:
    clients: list[socket.socket] = []
    with without_descriptors(tmp_path) as (child, port):
        while True:
            made = silent(port)
            with contextlib.suppress(ConnectionError):
                made.sendall(GREETING + command(READY))
            if exactly(made, 64 + 12)[64:] == TOO_MANY:
                break
            clients.append(made)
            made.sendall(message([b"hello"]))
            assert told(child, "let in") == "True"
        assert 5 < len(clients) < 40
        assert reason(silent(port)) == TOO_MANY
        with connect_to(str(tmp_path / "public")) as mine:
            mine.sendall(message([b"hello"]))
            assert told(child, "let in") == "True"
        for each in clients:
            each.close()

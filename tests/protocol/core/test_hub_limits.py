# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a hub: which connection another one replaces, what refused clients get, and floods."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("there are such connections on Linux only", allow_module_level=True)

from protocol._core import Hub, SilentConnections
from tests.evaluator.zmtp import (
    GREETING,
    READY,
    command,
    connect,
    connect_to,
    exactly,
    frame,
    is_closed,
    message,
)

WAIT_S = 60.0
TOO_MANY = command(b"\x05ERROR\x03300")
LIMITS = {"frame": 100_000, "message": 200_000, "parts": 8, "kept": 1_000_000, "connections": 8}


@dataclass
class Served:
    """A hub that a thread serves, at a port of this machine and at a path. taken: senders of the messages."""

    hub: Hub
    port: int
    path: str
    taken: list[int] = field(default_factory=list)


@contextlib.contextmanager
def served(folder: Path, **changed: int) -> Iterator[Served]:
    """A hub with other limits than LIMITS."""
    hub = Hub(**{**LIMITS, **changed})
    public = socket.create_server(("127.0.0.1", 0), backlog=512)
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(folder / "local"))
    local.listen()
    it = Served(hub, public.getsockname()[1], str(folder / "local"))
    hub.listen(public.detach(), local=False)
    hub.listen(local.detach())
    ends = threading.Event()

    def serve() -> None:
        while not ends.is_set():
            hub.wait(5)
            while (found := hub.take()) is not None:
                it.taken.append(found[0])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield it
    finally:
        ends.set()
        thread.join(WAIT_S)
        hub.close(0)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Served]:
    """A hub for eight clients and two silent connections of each address."""
    with served(tmp_path, per_source=2) as it:
        yield it


def until(condition: Callable[[], bool]) -> None:
    end = time.perf_counter() + WAIT_S
    while not condition():
        assert time.perf_counter() < end, "it never happened"


def silent(port: int, source: str = "127.0.0.1", said: bytes = b"") -> socket.socket:
    """A connection from an address, which sends that and nothing more; the hub has accepted it."""
    made = socket.create_connection(("127.0.0.1", port), WAIT_S, (source, 0))
    made.sendall(said)
    exactly(made, 64)
    return made


def speaking(it: Served) -> socket.socket:
    """A client that has sent a message."""
    before = len(it.taken)
    made = connect(it.port)
    made.sendall(message([b"hello"]))
    until(lambda: len(it.taken) > before)
    return made


def rest(connection: socket.socket) -> bytes:
    """What comes until the end of a connection."""
    came = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            came += part
    return came


def is_open(connection: socket.socket) -> bool:
    """Whether it is not closed, reading what has come."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
        return False
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(WAIT_S)


def test_address_loses_its_oldest_silent_connection_when_full(full: Served) -> None:
    first, second, third = (silent(full.port, "127.0.0.2") for _ in range(3))
    assert rest(first).endswith(TOO_MANY)
    assert full.hub.counts()["silent"] == 1
    assert full.hub.endings() == [("127.0.0.2", "silent")]
    assert is_open(second) and is_open(third)


@pytest.mark.parametrize("said", [b"", GREETING[:10], GREETING, GREETING + command(READY)], ids=len)
def test_a_connection_is_silent_until_its_first_message(full: Served, said: bytes) -> None:
    first = silent(full.port, said=said)
    others = [silent(full.port) for _ in range(2)]
    assert is_closed(first)
    assert all(map(is_open, others))


def test_address_with_most_silent_connections_makes_room(full: Served) -> None:
    alone = silent(full.port, "127.0.0.9")
    crowd = [silent(full.port, f"127.0.0.{2 + i // 2}") for i in range(7)]
    one_more = silent(full.port, "127.0.0.8")
    assert is_closed(crowd[0])
    assert is_open(alone) and is_open(one_more) and all(map(is_open, crowd[1:]))


def test_a_client_that_has_sent_a_message_keeps_its_place(full: Served) -> None:
    clients = [speaking(full) for _ in range(8)]
    refused = socket.create_connection(("127.0.0.1", full.port), WAIT_S)
    assert rest(refused).endswith(TOO_MANY)
    assert full.hub.counts()["connections"] == 1
    assert all(map(is_open, clients))


def test_local_clients_have_places_of_their_own(full: Served) -> None:
    clients = [speaking(full) for _ in range(8)]
    local = [connect_to(full.path) for _ in range(8)]
    assert all(map(is_open, [*clients, *local]))


@pytest.mark.parametrize("said", [b"", GREETING[:20], GREETING], ids=len)
def test_connection_ends_when_its_handshake_is_late(tmp_path: Path, said: bytes) -> None:
    with served(tmp_path, handshake_ms=50) as it:
        kept = connect(it.port)
        slow = silent(it.port, said=said)
        assert is_closed(slow)
        assert it.hub.counts()["late"] == 1
        assert is_open(kept)


def test_client_that_keeps_the_most_bytes_makes_room(tmp_path: Path) -> None:
    with served(tmp_path, buffered=250_000) as it:
        part = frame(bytes(60_000), more=True)
        others = [connect(it.port) for _ in range(2)]
        for each in others:
            each.sendall(part)
        until(lambda: it.hub.buffered > 120_000)
        most = connect(it.port)
        with contextlib.suppress(OSError):
            most.sendall(part * 3)
        assert is_closed(most)
        assert it.hub.counts()["crowded"] == 1
        assert all(map(is_open, others))
        until(lambda: it.hub.buffered < 130_000)


def test_a_flood_of_messages_delays_only_its_sender(tmp_path: Path) -> None:
    hub = Hub(**LIMITS)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    hub.listen(listener.detach(), local=False)
    with (
        socket.create_connection(("127.0.0.1", port)) as flood,
        socket.create_connection(("127.0.0.1", port)) as other,
    ):
        flood.sendall(GREETING + command(READY) + message([b"x"]) * 3000)
        until(lambda: hub.wait(1) or hub.has_message)
        first = hub.take()
        other.sendall(GREETING + command(READY) + message([b"one"]))
        senders = set()
        for _ in range(20):
            hub.wait(5)
            found = hub.take()
            senders.add(None if found is None else found[0])
        assert first is not None
        assert senders - {first[0], None}
    hub.close(0)


@pytest.mark.parametrize("name", [b"SUBSCRIBE", b"CANCEL", b"PING\0\0"])
def test_commands_that_are_no_messages_keep_no_memory(tmp_path: Path, name: bytes) -> None:
    with served(tmp_path) as it, connect(it.port) as client:
        text = bytes([name.find(b"\0") if b"\0" in name else len(name)]) + name
        for _ in range(20):
            client.sendall(command(text + (b"" if b"\0" in name else b"topic")) * 5000)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.recv(1 << 20)
            client.setblocking(True)
        client.sendall(message([b"end"]))
        until(lambda: bool(it.taken))
        assert it.hub.buffered == 0
        assert is_open(client)


def test_unread_answers_are_counted_until_they_are_read(tmp_path: Path) -> None:
    with served(tmp_path, kept=50_000_000) as it, connect(it.port) as client:
        client.sendall(message([b"who"]))
        until(lambda: bool(it.taken))
        number = it.taken[0]
        while it.hub.unread(number) < 2_000_000:
            assert it.hub.send(number, [bytes(90_000)])
        assert it.hub.buffered >= 2_000_000
        client.settimeout(WAIT_S)
        while it.hub.unread(number):
            client.recv(1 << 20)
        assert it.hub.buffered == 0


def test_silent_connections_are_displaced_in_order_of_arrival() -> None:
    connections = SilentConnections(2)
    for number, source in [(7, b"a"), (8, b"b"), (9, b"a")]:
        connections.add(number, source)
    assert connections.displaced_by(b"a") == 7
    assert connections.displaced_by(b"b") is None
    assert connections.victim() == 7
    assert connections.remove(7) and not connections.remove(7)
    assert connections.victim() == 8
    connections.add(8, b"a")  # a number that is used again is another connection
    assert (len(connections), connections.displaced_by(b"a")) == (2, 9)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP server under clients that are slow, silent, many or talk nonsense."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from evaluator.service.http import server
from evaluator.service.http.server import MOST_CONNECTIONS, RESERVED, Handler, Server

WAIT_S = 60.0


class Routes(Handler):
    """Says how long the path is; /large is more than any buffer takes, /wait waits for `gate`."""

    gate = threading.Event()
    entered = threading.Semaphore(0)
    left = threading.Semaphore(0)

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        if self.path == "/wait":
            self.entered.release()
            assert self.gate.wait(WAIT_S)
        size = 100_000_000 if self.path == "/large" else 0
        try:
            self.answer(200, b"x" * size or f"{len(self.path)}\n".encode(), "text/plain", X_Test="yes")
        finally:
            self.left.release()


@pytest.fixture
def port() -> Iterator[int]:
    Routes.gate, Routes.entered, Routes.left = (
        threading.Event(),
        threading.Semaphore(0),
        threading.Semaphore(0),
    )
    with Server(("127.0.0.1", 0), Routes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield int(server.server_address[1])
        Routes.gate.set()
        server.shutdown()
        thread.join(WAIT_S)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def ask(port: int, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    with connected(port) as connection:
        connection.sendall(request)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    """What still comes, until the connection ends."""
    found = b""
    with contextlib.suppress(ConnectionResetError):  # its end, for who had sent more than was read
        while part := connection.recv(65536):
            found += part
    return found


def test_a_request_may_come_in_pieces(port: int) -> None:
    with connected(port) as connection:
        for byte in b"GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n":
            connection.sendall(bytes([byte]))
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"\r\nX-Test: yes\r\n" in answer
    assert answer.endswith(b"\r\n\r\n7\n")


def test_it_says_no_more_of_itself_than_its_name(port: int) -> None:
    assert b"Server: wavefront \r\n" in ask(port, b"GET / HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET\r\n\r\n", b"400"),
        (b"<script>\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"<b> / HTTP/1.0\r\n\r\n", b"501"),
        (b"GET /" + 70_000 * b"a" + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET / HTTP/1.0\r\nA: " + 70_000 * b"a" + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\n" + 200 * b"A: b\r\n" + b"\r\n", b"431"),
    ],
)
def test_nonsense_is_refused_and_not_repeated(port: int, request_: bytes, code: bytes) -> None:
    answer = ask(port, request_)
    assert code in answer.split(b"\r\n")[0]
    assert b"<" not in answer
    assert b"200 OK" in ask(port, b"GET / HTTP/1.0\r\n\r\n")


def test_a_request_that_takes_too_long_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes of it come meanwhile."""
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    with connected(port) as connection:
        connection.settimeout(0.01)
        connection.sendall(b"GET / HTTP/1.0\r\nA: ")
        ended = False
        while not ended:
            with contextlib.suppress(TimeoutError):
                try:
                    connection.sendall(b"b")
                    ended = connection.recv(1) == b""
                except ConnectionError:
                    ended = True


def test_an_answer_that_nobody_takes_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.3)
    with connected(port) as connection:
        connection.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        assert Routes.left.acquire(timeout=WAIT_S)
        assert len(rest(connection)) < 100_000_000


def test_those_that_say_nothing_make_room_for_those_that_do(port: int) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(port)) for _ in range(MOST_CONNECTIONS)]
        for _ in range(5):
            assert b"200 OK" in ask(port, b"GET / HTTP/1.0\r\n\r\n")
        assert b" 503 " in rest(silent[0]), "the one that said nothing for the longest is gone"


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of loopback on Linux alone")
def test_an_address_displaces_its_own_silent_connections(port: int) -> None:
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(connected(port))
        for _ in range(2 * MOST_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S, ("127.0.0.2", 0)))
        mine.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in rest(mine)


def test_those_that_are_being_answered_stay(port: int) -> None:
    with contextlib.ExitStack() as stack:
        waiting = []
        for _ in range(MOST_CONNECTIONS + RESERVED):  # this machine's
            waiting.append(stack.enter_context(connected(port)))
            waiting[-1].sendall(b"GET /wait HTTP/1.0\r\n\r\n")
            assert Routes.entered.acquire(timeout=WAIT_S)
        assert b" 503 " in ask(port, b""), "one more is refused"
        Routes.gate.set()
        assert all(b"200 OK" in rest(connection) for connection in waiting)

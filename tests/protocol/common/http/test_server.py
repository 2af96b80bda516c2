# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP server under clients that are slow, silent, many, endless or talk nonsense."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from protocol.common.http import middleware
from protocol.common.http import server as limits
from protocol.common.http.access import AccessCheck
from protocol.common.http.middleware import Middleware
from protocol.common.http.server import RESERVED, HttpLimits, HttpServer

WAIT_S = 60.0
MOST = 16
OK = b"GET / HTTP/1.0\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\n"


class Served:
    """A server in a thread. entered: released when /wait is asked for, which waits for `gate`."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.logged: list[str] = []
        self.left = threading.Semaphore(0)
        app = Router(
            routes=[
                Route("/", self._root),
                Route("/body", self._body, methods=["POST"]),
                Route("/wait", self._wait),
                Route("/large", self._large),
                Route("/fault", self._fault),
            ]
        )
        self.loop = asyncio.new_event_loop()
        bounded = Middleware(app, AccessCheck, body_bytes=1000, log=lambda said, _: self.logged.append(said))
        self.server = HttpServer(bounded, HttpLimits(MOST))

    async def _root(self, request: Request) -> Response:
        return PlainTextResponse("yes\n")

    async def _body(self, request: Request) -> Response:
        return PlainTextResponse(f"{len(await request.body())}\n")

    async def _wait(self, request: Request) -> Response:
        self.entered.release()
        await asyncio.to_thread(self.gate.wait, WAIT_S)
        return PlainTextResponse("waited\n")

    async def _large(self, request: Request) -> Response:
        async def parts() -> Any:
            try:
                for _ in range(1000):
                    yield b"x" * 100_000
            finally:
                self.left.release()

        return StreamingResponse(parts())

    async def _fault(self, request: Request) -> Response:
        raise MemoryError


@contextmanager
def serving() -> Iterator[tuple[Served, int]]:
    served = Served()
    thread = threading.Thread(target=served.loop.run_forever)
    thread.start()

    def run(call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, served.loop).result(WAIT_S)

    try:
        yield served, run(served.server.start("127.0.0.1", 0, served.logged.append))[1]
    finally:
        served.gate.set()
        run(served.server.close())
        served.loop.call_soon_threadsafe(served.loop.stop)
        thread.join(WAIT_S)


@pytest.fixture
def served() -> Iterator[tuple[Served, int]]:
    with serving() as made:
        yield made


@pytest.fixture
def port(served: tuple[Served, int]) -> int:
    return served[1]


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S, (source, 0))


def ask(port: int, request: bytes, source: str = "127.0.0.1") -> bytes:
    """All that is answered to these bytes."""
    with connected(port, source) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(request)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return found


def test_request_may_come_in_pieces(port: int) -> None:
    with connected(port) as connection:
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nyes\n")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET\r\n\r\n", b"400"),
        (b"<script>\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
        (b"<b> / HTTP/1.0\r\n\r\n", b"400"),
        (b"GET /" + 70_000 * b"a" + b" HTTP/1.0\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\nA: " + 70_000 * b"a" + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\n" + 20_000 * b"A: b\r\n" + b"\r\n", b"431"),
        (b"GET / HTTP/1.0\r\nA: " + 30_000 * b"a" + b"\r\n\r\n", b"431"),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", b"400"),
        (b"POST /body HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", b"400"),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", b"400"),
    ],
)
def test_nonsense_is_refused_and_not_repeated(port: int, request_: bytes, code: bytes) -> None:
    answer = ask(port, request_)
    assert code in answer.split(b"\r\n")[0]
    assert b"<" not in answer
    assert b"200 OK" in ask(port, OK)


@pytest.mark.parametrize("line", [b"X: " + b"a" * 65_000 + b"\r\n", b"X: y\r\n" * 1000, b"X" * 1000])
def test_memory_is_bounded_when_headers_do_not_end(port: int, line: bytes) -> None:
    before = psutil.Process().memory_info().rss
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(port, f"127.0.0.{2 + number}")) for number in range(8)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            with contextlib.suppress(OSError):
                for _ in range(3_000_000 // len(line)):
                    client.sendall(line)
            assert b" 431 " in (rest(client) or b" 431 ")
    assert psutil.Process().memory_info().rss - before < 10_000_000


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 1001\r\n\r\n" + b"a" * 1001,
        POST + b"Content-Length: 99999999999\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"a" * 1000 + b"\r\n1\r\na\r\n",
    ],
)
def test_body_is_refused_when_it_is_too_long(port: int, request_: bytes) -> None:
    assert b" 413 " in ask(port, request_).split(b"\r\n")[0]


def test_connection_ends_when_a_body_is_not_read(port: int) -> None:
    answer = ask(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n")
    assert b" 200 " in answer
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    ("module", "name", "begin"),
    [
        (limits, "REQUEST_S", b"GET / HTTP/1.0\r\nA: "),
        (middleware, "BODY_S", POST + b"Content-Length: 999\r\n\r\n"),
    ],
)
def test_request_is_given_up_when_header_or_body_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, begin: bytes
) -> None:
    monkeypatch.setattr(module, name, 0.3)
    with serving() as (_, port), connected(port) as connection:
        connection.settimeout(0.01)
        connection.sendall(begin)
        found, ended = b"", False
        while not ended:
            with contextlib.suppress(TimeoutError):
                try:
                    connection.sendall(b"b")
                    found += (part := connection.recv(1000))
                    ended = part == b""
                except ConnectionError:
                    ended = True
    assert b" 408 " in found


def test_answer_is_given_up_when_nobody_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_S", 0.3)
    with serving() as (served, port), connected(port) as connection:
        connection.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        assert served.left.acquire(timeout=WAIT_S)
        assert len(rest(connection)) < 100_000_000


@pytest.mark.parametrize("begin", [b"", POST + b"Content-Length: 9\r\n\r\n"])
def test_silent_connections_make_room_for_those_that_ask(port: int, begin: bytes) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(port)) for _ in range(MOST)]
        for connection in silent:
            connection.sendall(begin)
        for _ in range(5):
            assert b"200 OK" in ask(port, OK)
        assert b" 503 " in rest(silent[0]), "the one that said nothing for the longest is gone"


def test_kept_connection_ends_without_an_answer_when_it_makes_room(port: int) -> None:
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(connected(port))
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not kept.recv(1000).endswith(b"yes\n"):
            pass
        for _ in range(MOST):
            stack.enter_context(connected(port))
        assert rest(kept) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of loopback on Linux alone")
def test_address_displaces_its_own_silent_connections(port: int) -> None:
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(connected(port))
        for _ in range(2 * MOST):
            stack.enter_context(connected(port, "127.0.0.2"))
        mine.sendall(OK)
        assert b"200 OK" in rest(mine)


def test_requests_stay_when_there_is_no_more_room(served: tuple[Served, int]) -> None:
    room, port = served
    with contextlib.ExitStack() as stack:
        waiting = []
        for _ in range(MOST + RESERVED):
            waiting.append(stack.enter_context(connected(port)))
            waiting[-1].sendall(b"GET /wait HTTP/1.0\r\n\r\n")
            assert room.entered.acquire(timeout=WAIT_S)
        assert b" 503 " in ask(port, b""), "one more is refused"
        room.gate.set()
        assert all(b"200 OK" in rest(connection) for connection in waiting)


def test_client_that_has_ended_its_side_is_answered(served: tuple[Served, int]) -> None:
    room, port = served
    with connected(port) as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert room.entered.acquire(timeout=WAIT_S)
        room.gate.set()
        assert rest(connection).endswith(b"waited\n")


def test_fault_is_answered_and_logged(served: tuple[Served, int]) -> None:
    room, port = served
    assert b" 500 " in ask(port, b"GET /fault HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    assert room.logged
    assert b"200 OK" in ask(port, OK)


def test_request_id_is_the_clients_when_it_is_a_word(port: int) -> None:
    assert b"x-request-id: mine-1\r\n" in ask(port, b"GET / HTTP/1.0\r\nX-Request-Id: mine-1\r\n\r\n")
    assert b"mine 1" not in ask(port, b"GET / HTTP/1.0\r\nX-Request-Id: mine 1\r\n\r\n")


def test_foreign_page_gets_nothing(port: int) -> None:
    assert b" 421 " in ask(port, b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert b" 403 " in ask(port, b"GET / HTTP/1.0\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_connection_ends_when_its_client_vanishes(served: tuple[Served, int]) -> None:
    """No loopback loses packets, so this looks at the option of the accepted connection."""
    room, port = served
    with connected(port) as connection:
        connection.sendall(b"GET /wait HTTP/1.0\r\n\r\n")
        assert room.entered.acquire(timeout=WAIT_S)
        (accepted,) = room.server._state.connections
        own = accepted.transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * limits.ANSWER_S

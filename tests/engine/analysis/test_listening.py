# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront analysis --listen`: the conversation over WebSocket, with clients of all kinds."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.typing import Origin, Subprotocol

from protocol.http.access import SUBPROTOCOL, TOKEN_PREFIX
from tests.engine.analysis.recording import ANSWER
from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

TOKEN = "the-token-of-this-test"
COMMAND = [sys.executable, str(REPOSITORY / "run_engine.py"), "analysis", "--backend", "random"]


@contextmanager
def service(*flags: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a service and its process."""
    command = [*COMMAND, "--listen", "127.0.0.1:0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told["event"] == "listening"
            yield told["address"], process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    flags = ("--searches", "4", "--max-message-bytes", "5000", "--max-unread-bytes", "200000")
    with service(*flags) as (url, _):
        yield url


def say(connection: Connection, **message: Any) -> None:
    connection.send(json.dumps(message))


def hear(connection: Connection) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(connection.recv(timeout=60))
    ANSWER.validate(answer)
    return answer


def test_queries_and_answers_are_messages(address: str) -> None:
    with connect(address) as connection:
        say(connection, id="v", action="query_version")
        assert hear(connection)["name"] == "Wavefront"
        say(connection, id="a", moves=["e2e4"], analyze_turns=[0, 1], nodes=50)
        assert {hear(connection)["turn"], hear(connection)["turn"]} == {0, 1}
        connection.send(b'{"id": "bytes", "nodes": 10}')
        assert hear(connection)["id"] == "bytes"


def test_a_bad_message_is_answered_and_the_connection_continues(address: str) -> None:
    with connect(address) as connection:
        for message in ("", "nonsense", "[]", b"\xff", "[" * 4000):
            connection.send(message)
            assert "error" in hear(connection)
        say(connection, id="good", nodes=10)
        assert hear(connection)["id"] == "good"


def test_clients_hear_of_their_own_queries_alone(address: str) -> None:
    with connect(address) as first, connect(address) as second:
        say(first, id="same", infinite=True, report_every=0.01)
        assert hear(first)["during_search"]
        say(second, id="same", nodes=10)
        assert hear(second)["root"]["visits"] == 10
        say(second, id="all", action="terminate_all")
        assert hear(second)["action"] == "terminate_all"
        assert hear(first)["during_search"]


def test_a_client_that_goes_takes_its_searches_along(address: str) -> None:
    with connect(address) as gone:
        for number in range(40):
            say(gone, id=str(number), infinite=True, report_every=0.01)
        hear(gone)
    with connect(address) as connection:
        for number in range(8):
            say(connection, id=str(number), nodes=20)
        assert len({hear(connection)["id"] for _ in range(8)}) == 8


def test_a_message_that_is_too_long_ends_its_connection_alone(address: str) -> None:
    with connect(address) as other, connect(address) as connection:
        connection.send(json.dumps({"id": "a", "fen": "x" * 6000}))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        say(other, id="b", nodes=10)
        assert hear(other)["id"] == "b"


def test_a_client_that_does_not_read_is_disconnected_and_disturbs_nobody(address: str) -> None:
    """Its answers take up more memory than it may have."""
    with connect(address) as other, silent_client(address) as silent:
        with pytest.raises(OSError):  # noqa: PT011 -- reset or broken pipe, as the system has it
            for _ in range(100_000):
                silent.sendall(_frame({"id": "o", "action": "query_options"}))
        say(other, id="b", nodes=10)
        assert hear(other)["id"] == "b"


def test_a_client_that_reads_nothing_for_long_is_disconnected() -> None:
    """However much memory there is for its answers."""
    with (
        service("--max-unread-seconds", "0.5", "--max-unread-bytes", str(1 << 30)) as (url, _),
        silent_client(url) as silent,
    ):
        for _ in range(1000):
            silent.sendall(_frame({"id": "o", "action": "query_options"}))
        ended = select.poll()
        ended.register(silent, 0)  # A reset, whatever is still to be read.
        with pytest.raises(OSError):  # noqa: PT011
            for _ in range(6000):
                silent.sendall(_frame({"id": "v", "action": "query_version"}))
                if ended.poll(10):
                    silent.sendall(b"too late")


@contextmanager
def silent_client(address: str) -> Iterator[socket.socket]:
    """A client that never reads, over a plain socket."""
    parts = urlsplit(address)
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.settimeout(60)
        silent.connect((parts.hostname, parts.port))
        silent.sendall(_handshake(parts.netloc))
        yield silent


def _handshake(host: str) -> bytes:
    return (
        f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def _frame(message: dict[str, Any]) -> bytes:
    """A text frame, masked with zeros."""
    payload = json.dumps(message).encode()
    assert len(payload) < 126
    return bytes([0x81, 0x80 | len(payload)]) + bytes(4) + payload


@pytest.mark.skipif(sys.platform == "win32", reason="there are no descriptors")
def test_connections_that_ask_for_nothing_make_room_for_those_that_do() -> None:
    with service() as (address, process), contextlib.ExitStack() as stack:
        place = urlsplit(address)
        silent = [
            stack.enter_context(socket.create_connection((place.hostname, place.port), 60))
            for _ in range(192)
        ]
        with connect(address) as other:
            say(other, id="b", nodes=10)
            assert hear(other)["id"] == "b"
            assert psutil.Process(process.pid).num_fds() < 128
        assert all(b" 503 " in connection.recv(1000) for connection in silent[:64])


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of loopback on Linux alone")
def test_without_descriptors_for_more_it_serves_those_it_has_and_says_so_once() -> None:
    """asyncio itself says it a hundred times a second, with a traceback."""
    command = f"ulimit -n 96; exec {shlex.join([*COMMAND, '--listen', '127.0.0.1:0'])}"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            address = json.loads(process.stdout.readline())["address"]
            place = urlsplit(address)
            with connect(address) as connection, contextlib.ExitStack() as stack:
                say(connection, id="a", nodes=10)
                assert hear(connection)["id"] == "a"
                for _ in range(40):
                    stack.enter_context(connect(address, close_timeout=1))
                for number in range(64):  # No address may have more than a quarter of them.
                    source = (f"127.0.0.{2 + number % 8}", 0)
                    stack.enter_context(socket.create_connection((place.hostname, place.port), 60, source))
                assert b"Too many open files" in process.stderr.readline()
                say(connection, id="b", nodes=10)
                assert hear(connection)["id"] == "b"
            with connect(address, open_timeout=60) as connection:
                say(connection, id="c", nodes=10)
                assert hear(connection)["id"] == "c"
            process.terminate()
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_a_page_of_a_foreign_site_is_not_let_in(address: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(address, origin=Origin("https://other.example")):
        pass
    assert refused.value.response.status_code == 403
    with connect(address, origin=Origin("http://localhost:3000")) as connection:
        say(connection, id="v", action="query_version")
        assert hear(connection)["id"] == "v"


def test_the_token_is_needed_where_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    with service("--token-file", str(file), "--max-clients", "1") as (url, _):
        for headers, status in (({}, 401), ({"Authorization": "Bearer another-token-than-that"}, 403)):
            with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
                pass
            assert refused.value.response.status_code == status
        with connect(url, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as connection:
            say(connection, id="v", action="query_version")
            assert hear(connection)["id"] == "v"
            with (
                pytest.raises(InvalidStatus) as full,
                connect(url, additional_headers={"Authorization": f"Bearer {TOKEN}"}),
            ):
                pass
            assert full.value.response.status_code == 503


def test_a_page_names_the_token_as_a_subprotocol(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    offered = [Subprotocol(SUBPROTOCOL), Subprotocol(TOKEN_PREFIX + TOKEN)]
    with (
        service("--token-file", str(file)) as (url, _),
        connect(url, subprotocols=offered, origin=Origin("https://chess.example")) as connection,
    ):
        assert connection.subprotocol == SUBPROTOCOL
        say(connection, id="v", action="query_version")
        assert hear(connection)["id"] == "v"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_sigterm_ends_the_service_and_its_evaluator() -> None:
    with service() as (url, process), connect(url) as connection:
        say(connection, id="a", infinite=True, report_every=0.01)
        assert hear(connection)["during_search"]
        os.kill(process.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                connection.recv(timeout=60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--listen", "0.0.0.0:0"), "--token-file"),
        (("--listen", "nowhere"), "HOST:PORT"),
        (("--listen", "127.0.0.1:0", "--token-file", "/nonexistent"), "cannot read"),
    ],
)
def test_wrong_usage_is_reported(flags: tuple[str, ...], message: str) -> None:
    done = subprocess.run([*COMMAND, *flags], capture_output=True, timeout=60, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ["--listen", f"127.0.0.1:{taken.getsockname()[1]}"]
        done = subprocess.run([*COMMAND, *flags], capture_output=True, timeout=60, text=True)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_an_evaluator_the_service_ends() -> None:
    done = subprocess.run(
        [*COMMAND, "--listen", "127.0.0.1:0", "--backend", "imaginary"],
        capture_output=True,
        timeout=60,
        text=True,
    )
    assert done.returncode == 1
    assert "imaginary" in done.stderr


def get(address: str, path: str, token: str = "") -> tuple[int, str, str]:
    """Status, content type and body of a page."""
    place = urlsplit(address)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    with contextlib.closing(connection):
        return response.status, response.headers["Content-Type"], response.read().decode()


def test_health_metrics_and_clients_are_pages(address: str) -> None:
    with connect(address) as connection:
        say(connection, id="a", infinite=True, report_every=0.01)
        assert hear(connection)["during_search"]
        assert get(address, "/health") == (200, "application/json", '{"state": "ready"}\n')
        status, kind, metrics = get(address, "/metrics")
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        assert "wavefront_analysis_clients 1.0\n" in metrics
        assert "wavefront_analysis_searching_positions 1.0\n" in metrics
        (client,) = json.loads(get(address, "/clients")[2])
        assert (client["name"], client["address"], client["searching"]) == ("", "127.0.0.1", 1)
    assert get(address, "/other")[0] == 404


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
def test_a_token_has_a_name_and_can_be_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(f"ann {TOKEN}-of-ann\nbob {TOKEN}-of-bob\n")
    with service("--token-file", str(file)) as (address, process):
        ann, bob = (
            connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}-of-{name}"})
            for name in ("ann", "bob")
        )
        with ann, bob:
            for client in (ann, bob):
                say(client, id="a", nodes=5)
                assert hear(client)["id"] == "a"
            assert get(address, "/clients")[0] == get(address, "/metrics")[0] == 401
            assert get(address, "/health")[0] == 200
            listed = json.loads(get(address, "/clients", f"{TOKEN}-of-bob")[2])
            assert {each["name"] for each in listed} == {"ann", "bob"}
            file.write_text(f"bob {TOKEN}-of-bob\n")
            process.send_signal(signal.SIGHUP)
            with pytest.raises(ConnectionClosed):
                ann.recv(timeout=60)
            say(bob, id="b", nodes=5)
            assert hear(bob)["id"] == "b"
        assert get(address, "/clients", f"{TOKEN}-of-ann")[0] == 403

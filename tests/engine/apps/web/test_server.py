# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of `wavefront web`: its start and end, its tokens, and too many connections."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.engine.apps.web.serving import COMMAND, WAIT_S, Web, stream, web

pytestmark = pytest.mark.integration

TOKEN = "the-token-of-this-test"


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (("--listen", "0.0.0.0:0"), 2, "--token-file"),
        (("--listen", "nowhere"), 2, "HOST:PORT"),
        (("--token-file", "/nonexistent"), 2, "cannot read"),
        (("--listen", "127.0.0.1:TAKEN"), 1, "cannot listen"),
        (("--listen", "127.0.0.1:0", "--backend", "imaginary"), 1, "imaginary"),
    ],
)
def test_wrong_usage_is_reported(flags: tuple[str, ...], status: int, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [flag.replace("TAKEN", str(taken.getsockname()[1])) for flag in flags]
        command = [*COMMAND, "--private", "--backend", "random", *given]
        done = subprocess.run(command, capture_output=True, timeout=WAIT_S, text=True)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_infinite_search_ends_with_its_answer_when_the_service_ends() -> None:
    with web() as server, stream(server) as response:
        server.process.send_signal(signal.SIGTERM)
        assert not json.loads(response.read().splitlines()[-1])["during_search"]
        assert server.process.wait(WAIT_S) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
def test_token_has_a_name_and_can_be_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(f"ann {TOKEN}-of-ann\nbob {TOKEN}-of-bob\n")
    bob = {"Authorization": f"Bearer {TOKEN}-of-bob"}
    ann = {"Authorization": f"Bearer {TOKEN}-of-ann"}
    with web("--token-file", str(file)) as server, stream(server, f"{TOKEN}-of-bob") as stays:
        with stream(server, f"{TOKEN}-of-ann") as ends:
            assert server.get("/metrics").status == 401
            assert server.get("/health").data == {"state": "ready"}
            assert b"searching_positions 2.0" in server.get("/metrics", **bob).body
            games = {"pgn": "1. e4 e5 *", "nodes": 25_000}
            jobs = [server.post("review", games, **ann).data["id"] for _ in range(2)]  # One runs, one waits.
            file.write_text("no token\n")
            server.process.send_signal(signal.SIGHUP)
            assert server.process.stderr is not None
            while "stay as they were" not in server.process.stderr.readline():
                pass
            file.write_text(f"bob {TOKEN}-of-bob\n")
            server.process.send_signal(signal.SIGHUP)
            *_, last, reason = map(json.loads, ends.read().splitlines())
            assert not last["during_search"]
            assert reason == {"error": "the token was removed"}
        states = [server.get(f"/api/v1/review/{job}", **bob).data for job in jobs]
        assert [(job["state"], job["reason"]) for job in states] == [("stopped", "the token was removed")] * 2
        assert json.loads(stays.readline())["during_search"]
        assert server.get("/metrics", Authorization=f"Bearer {TOKEN}-of-ann").status == 403


@pytest.mark.skipif(sys.platform == "win32", reason="there are no descriptors")
def test_silent_connections_make_room_for_requests() -> None:
    with web() as server, contextlib.ExitStack() as stack:
        host, port = server.netloc.split(":")
        silent = [
            stack.enter_context(socket.create_connection((host, int(port)), WAIT_S)) for _ in range(192)
        ]
        assert server.post("analyse", {"nodes": 10}).status == 200
        assert psutil.Process(server.process.pid).num_fds() < 128
        assert all(b" 503 " in connection.recv(1000) for connection in silent[:64])


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of loopback on Linux alone")
def test_service_logs_once_that_descriptors_are_used_up_and_recovers() -> None:
    """asyncio itself says it a hundred times a second, with a traceback."""
    flags = ["--listen", "127.0.0.1:0", "--backend", "random", "--private"]
    command = ["sh", "-c", f"ulimit -n 96; exec {shlex.join([*COMMAND, *flags])}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            server = Web(process.stdout.readline().split()[4], process)
            with stream(server) as running, contextlib.ExitStack() as stack:
                for _ in range(40):
                    stack.enter_context(stream(server))
                for number in range(64):  # No address may have more than a quarter of them.
                    source, (host, port) = (f"127.0.0.{2 + number % 8}", 0), server.netloc.split(":")
                    stack.enter_context(socket.create_connection((host, int(port)), WAIT_S, source))
                assert "Too many open files" in process.stderr.readline()
                assert json.loads(running.readline())["during_search"]
            assert server.post("analyse", {"nodes": 10}).status == 200
            process.terminate()
            assert process.stderr.read() == ""
        finally:
            process.kill()

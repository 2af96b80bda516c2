# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront get`, with a server on this machine in place of the publisher."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evaluator.network import SHIPPED_NETWORK
from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

CONTENT = SHIPPED_NETWORK.read_bytes()
BREAK = 100_000


class Publisher(ThreadingHTTPServer):
    """Serves a network. content: of each file. breaks: answers that end after BREAK bytes. ranges: whether it
    knows them. status: of its answers. asked: paths and ranges."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.breaks, self.ranges, self.status = CONTENT, 0, True, 200
        self.asked: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range", "")
        server.asked.append((self.path, wanted))
        begin = int(wanted[6:-1]) if wanted and server.ranges else 0
        status = (
            server.status if server.status != 200 else 416 if begin >= len(CONTENT) else 206 if begin else 200
        )
        self.send_response(status)
        of = "*" if status == 416 else f"{begin}-{len(CONTENT) - 1}"
        if status in (206, 416):
            self.send_header("Content-Range", f"bytes {of}/{len(CONTENT)}")
        rest = server.content[begin:] if status in (200, 206) else b""
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if server.breaks:
            server.breaks -= 1
            rest = rest[:BREAK]
        self.wfile.write(rest)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def wavefront(home: Path, *arguments: str, status: int = 0, answer: str = "", **variables: str) -> str:
    """Run the program with a data folder; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "run_engine.py"), *arguments],
        env={**environment, "XDG_DATA_HOME": str(home), **variables},
        input=answer,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def file_of(home: Path, name: str) -> Path:
    return home / "wavefront" / "networks" / f"{name}.pb.gz"


def test_get_fetches_once_and_the_network_is_then_known_by_name(tmp_path: Path, publisher: Publisher) -> None:
    told = wavefront(tmp_path, "get", "T82", "--mirror", publisher.url, answer="y\n")
    assert "about 165.0 MB" in told
    assert file_of(tmp_path, "t82").read_bytes() == CONTENT
    assert publisher.asked == [("/768x15x24h-t82-swa-7464000.pb.gz", "")]
    answer = wavefront(tmp_path, "evaluate", "--weights", "t82", "--backend", "reference", answer="startpos")
    assert '"policy"' in answer
    assert "t82 is here" in wavefront(tmp_path, "get", "t82", "--offline")
    assert len(publisher.asked) == 1
    file_of(tmp_path, "t82").write_bytes(b"other")
    assert "not the publisher's file" in wavefront(tmp_path, "get", "t82", "--yes", status=2)


@pytest.mark.parametrize("ranges", [True, False])
def test_get_resumes_after_a_break(tmp_path: Path, publisher: Publisher, ranges: bool) -> None:
    publisher.breaks, publisher.ranges = 1, ranges
    wavefront(tmp_path, "get", "t82", "--yes", "--mirror", publisher.url)
    assert [asked for _, asked in publisher.asked] == ["", f"bytes={BREAK}-"]
    assert file_of(tmp_path, "t82").read_bytes() == CONTENT


@pytest.mark.parametrize("done", [BREAK, len(CONTENT), len(CONTENT) + 5])
def test_get_resumes_what_an_earlier_run_left(tmp_path: Path, publisher: Publisher, done: int) -> None:
    part = file_of(tmp_path, "t82").with_suffix(".gz.part")
    part.parent.mkdir(parents=True)
    part.write_bytes((CONTENT + b"other")[:done])
    wavefront(tmp_path, "get", "t82", "--yes", "--mirror", publisher.url)
    assert publisher.asked[0][1] == f"bytes={done}-"
    assert file_of(tmp_path, "t82").read_bytes() == CONTENT
    assert not part.exists()


@pytest.mark.parametrize(
    ("name", "status", "content", "told"),
    [
        ("maia-1500", 200, CONTENT, "not 35ab6f20421d"),
        ("t82", 200, b"no network", "no network that can be read"),
        ("t82", 404, CONTENT, "Not Found"),
    ],
    ids=["wrong digest", "no network", "not found"],
)
def test_get_keeps_nothing_that_is_not_the_network(
    tmp_path: Path, publisher: Publisher, name: str, status: int, content: bytes, told: str
) -> None:
    publisher.status, publisher.content = status, content
    said = wavefront(tmp_path, "get", name, "--yes", "--mirror", publisher.url, status=1)
    assert told in said
    assert "save https://" in said and str(file_of(tmp_path, name)) in said
    assert not any(file.stat().st_size for file in file_of(tmp_path, name).parent.iterdir())


def test_get_names_an_address_that_refuses_and_the_proxy(tmp_path: Path, publisher: Publisher) -> None:
    refused = f"http://127.0.0.1:{publisher.server_port}"
    publisher.server_close()
    said = wavefront(tmp_path, "get", "maia-1500", "bt4", "--yes", "--mirror", refused, status=1)
    assert said.count("Connection refused") == 2 and refused in said
    told = wavefront(tmp_path, "get", "bt4", "--yes", status=1, https_proxy=f"http://me:secret@{refused[7:]}")
    assert "(proxy 127.0.0.1)" in told and "secret" not in told


def test_get_asks_the_proxy_of_the_environment(tmp_path: Path, publisher: Publisher) -> None:
    wavefront(
        tmp_path, "get", "t82", "--yes", "--mirror", "http://mirror.invalid/nets/", http_proxy=publisher.url
    )
    assert publisher.asked == [("http://mirror.invalid/nets/768x15x24h-t82-swa-7464000.pb.gz", "")]


@pytest.mark.parametrize("arguments", [("--offline",), ()])
def test_get_fetches_nothing_unless_it_is_confirmed(
    tmp_path: Path, publisher: Publisher, arguments: tuple[str, ...]
) -> None:
    wavefront(tmp_path, "get", "maia-1500", *arguments, "--mirror", publisher.url, status=1)
    assert publisher.asked == [] and not any(tmp_path.iterdir())

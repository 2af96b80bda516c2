# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront get`, with a server on this machine in place of the publisher."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch

import pytest

from evaluator.network import SHIPPED_NETWORK, network_file
from tests import programs

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
        status = server.status if not begin else 416 if begin >= len(CONTENT) else 206
        rest = b"" if status == 416 else server.content[begin:]
        self.send_response(status)
        of = "*" if status == 416 else f"{begin}-{len(CONTENT) - 1}"
        self.send_header("Content-Range", f"bytes {of}/{len(CONTENT)}" if begin else "")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[:BREAK] if server.breaks else rest)
        server.breaks = max(0, server.breaks - 1)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def get(home: Path, *arguments: str, status: int = 0, answer: str = "", **variables: str) -> str:
    """Run `wavefront get` with a data folder; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    variables = {**environment, "XDG_DATA_HOME": str(home), **variables}
    with patch.dict(os.environ, variables, clear=True), patch("urllib.request._opener", None):
        done = programs.command("get", *arguments, status=status, input=answer)
    return done.stdout + done.stderr


def file_of(home: Path, name: str) -> Path:
    return home / "wavefront" / "networks" / f"{name}.pb.gz"


@pytest.mark.parametrize("ranges", [True, False])
def test_get_resumes_and_its_network_is_then_known_by_name(
    tmp_path: Path, publisher: Publisher, ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.breaks, publisher.ranges = 1, ranges
    assert "about 165.0 MB" in get(tmp_path, "T82", "--mirror", publisher.url, answer="y\n")
    path = "/768x15x24h-t82-swa-7464000.pb.gz"
    assert publisher.asked == [(path, ""), (path, f"bytes={BREAK}-")]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert network_file("t82").read_bytes() == CONTENT
    assert "t82 is here" in get(tmp_path, "t82", "--offline")
    assert len(publisher.asked) == 2
    file_of(tmp_path, "t82").write_bytes(b"other")
    assert "not the file that was fetched" in get(tmp_path, "t82", "--yes", status=2)


@pytest.mark.parametrize("done", [BREAK, len(CONTENT), len(CONTENT) + 5])
def test_get_resumes_what_an_earlier_run_left(tmp_path: Path, publisher: Publisher, done: int) -> None:
    part = file_of(tmp_path, "t82").with_suffix(".gz.part")
    part.parent.mkdir(parents=True)
    part.write_bytes((CONTENT + b"other")[:done])
    get(tmp_path, "t82", "--yes", "--mirror", publisher.url)
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
    said = get(tmp_path, name, "--yes", "--mirror", publisher.url, status=1)
    assert told in said and "save https://" in said and str(file_of(tmp_path, name)) in said
    assert not any(file.stat().st_size for file in file_of(tmp_path, name).parent.iterdir())


def test_get_asks_the_proxy_and_names_what_refuses(tmp_path: Path, publisher: Publisher) -> None:
    mirror = "http://mirror.invalid/nets/"
    get(tmp_path, "t82", "--yes", "--mirror", mirror, http_proxy=publisher.url)
    assert publisher.asked == [(f"{mirror}768x15x24h-t82-swa-7464000.pb.gz", "")]
    publisher.shutdown()  # Its thread would poll a descriptor that others may have then.
    publisher.server_close()
    said = get(tmp_path, "maia-1500", "bt4", "--yes", "--mirror", publisher.url, status=1)
    assert said.count("Connection refused") == 2 and publisher.url in said
    proxy = publisher.url.replace("//", "//me:secret@")
    told = get(tmp_path, "bt4", "--yes", status=1, https_proxy=proxy)
    assert "(proxy 127.0.0.1)" in told and "secret" not in told

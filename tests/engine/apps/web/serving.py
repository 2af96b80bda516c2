# SPDX-License-Identifier: GPL-3.0-or-later
"""A running `wavefront web` for tests, and requests to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.paths import REPOSITORY, USER_DATA

WAIT_S = 60.0
NDJSON = "application/x-ndjson"
COMMAND = [sys.executable, str(REPOSITORY / "run_engine.py"), "web"]


@dataclass
class Answer:
    """An answer by HTTP."""

    status: int
    headers: Message
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Web:
    """A server. url: with a final slash."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url, self.process = url, process
        self.netloc = urlsplit(url).netloc

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        connection = HTTPConnection(self.netloc, timeout=WAIT_S)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(connection):
            connection.request(method, path, data, {"Content-Type": "application/json"} | given)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, name: str, body: object, **headers: str) -> Answer:
        return self.ask("POST", f"/api/v1/{name}", body, **headers)


@contextmanager
def web(*flags: str, port: int = 0, data: Path | None = None) -> Iterator[Web]:
    """A server with random evaluations, ready when this returns. data: folder for games; None keeps none."""
    command = [*COMMAND, "--listen", f"127.0.0.1:{port}", "--backend", "random", *flags]
    command += [] if data else ["--private"]
    environment = {**os.environ, **({USER_DATA: str(data)} if data else {})}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            server = Web(found[0], process)
            end = time.perf_counter() + WAIT_S
            while server.get("/ready").status != 200:
                assert time.perf_counter() < end
            yield server
        finally:
            process.kill()


@contextmanager
def stream(server: Web, token: str = "") -> Iterator[HTTPResponse]:
    """An infinite search whose first line has been read."""
    connection = HTTPConnection(server.netloc, timeout=WAIT_S)
    headers = {"Accept": NDJSON} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request("POST", "/api/v1/analyse", '{"infinite": true, "report_every": 0.05}', headers)
    response = connection.getresponse()
    with closing(connection), response:
        assert json.loads(response.readline())["during_search"]
        yield response

# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of the soak test's service: `wavefront web` with clients that leave, and `wavefront lichess`."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks.common.installation import CHECKOUT
from benchmarks.service.soak_troubles import Trouble
from tests.peers.lichess_broker import Broker, Record

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
SHUFFLE = "".join(f"{n}. Nf3 Nf6 {n + 1}. Ng1 Ng8 " for n in range(1, 20_000, 2)) + "*"
WAIT_S = 120.0
LEAST_ROOM_S = 2.0
"""Slowest answer of /live that is no fault: the machine is full."""

Request = tuple[str, str, object]

REQUESTS: dict[str, Request] = {
    "analyse": ("POST", "/api/v1/analyse", {"nodes": 100}),
    "evaluate": ("POST", "/api/v1/evaluate", {"positions": [START] * 200}),
    "move": ("POST", "/api/v1/move", {"nodes": 50}),
    "human": ("POST", "/api/v1/human", {"elo": 1500}),
    "position": ("POST", "/api/v1/position", {"moves": ["e4", "e5"]}),
    "pgn": ("POST", "/api/v1/pgn/read", {"pgn": SHUFFLE}),
    "networks": ("GET", "/api/v1/networks", None),
}
BODIES = [b'{"positions":[' + b"[]," * 2_000_000 + b"[]]}", b'{"positions":[' + b'"e4",' * 1_000_000 + b"1]}"]


def _started(log: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    with log.open("w") as file:
        return subprocess.Popen(
            [*CHECKOUT.engine, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            env=CHECKOUT.environment(**variables),
            cwd=CHECKOUT.folder,
            text=True,
        )


class Web(Trouble):
    """Requests `wavefront web` from many threads. Some wait for the answer, some leave at any moment.

    longest: maximum seconds of an answer of /live.
    """

    def __init__(self, address: str, folder: Path, clients: int, pause_s: float) -> None:
        """folder: of its log, and of the games and reviews that it keeps."""
        super().__init__(pause_s)
        words = ("web", "--listen", "127.0.0.1:0", "--evaluator", address)
        self._process = _started(folder / "web.log", *words, XDG_DATA_HOME=str(folder / "data"))
        assert self._process.stdout is not None
        found = re.search(r":(\d+)/", self._process.stdout.readline())
        assert found is not None
        self._port, self.pid = int(found[1]), self._process.pid
        self._clients = ThreadPoolExecutor(clients)
        self._count, self._lock = clients, threading.Lock()
        self.longest = 0.0
        self.memory = ""

    def step(self, number: int) -> None:
        generator = random.Random(number)
        steps: list[Callable[[random.Random], None]] = [self._whole, self._whole, self._leave, self._flood]
        weights = [0.5, 0.1, 0.37, 0.03]
        chosen = generator.choices(steps, weights, k=self._count)
        done = [
            self._clients.submit(self._guarded, step, random.Random(generator.random())) for step in chosen
        ]
        while not all(each.done() for each in done):
            begin = time.perf_counter()
            if (status := self._ask("GET", "/live", None)[0]) != 200:
                self.faults[f"/live is answered {status}"] += 1
            self.longest = max(self.longest, time.perf_counter() - begin)
            time.sleep(0.05)
        self._review()

    def stop(self) -> None:
        """Stop, and see whether anything is left of clients that are gone."""
        super().stop()
        self._clients.shutdown()
        end = time.perf_counter() + WAIT_S
        names = ("requests_in_flight", "searching_positions", "waiting_positions")
        while (left := [self._metric(name) for name in names]) != [1, 0, 0] and time.perf_counter() < end:
            time.sleep(0.2)
        if left != [1, 0, 0]:
            self.faults[f"left of clients that are gone: {dict(zip(names, left, strict=True))}"] += 1
        if self._ask("GET", "/ready", None)[0] != 200:
            self.faults["/ready is not 200"] += 1
        self.memory = f", {psutil.Process(self._process.pid).memory_info().rss / 1e6:.0f} MB"
        self.close()

    def close(self) -> None:
        """Kill the server. Idempotent."""
        self._process.kill()
        self._process.wait()

    def remark(self) -> str:
        return f", longest answer of /live {self.longest:.2f} s{self.memory}"

    def _guarded(self, step: Callable[[random.Random], None], generator: random.Random) -> None:
        try:
            step(generator)
        except Exception as error:  # any error is part of the verdict
            with self._lock:
                self.faults[f"{step.__name__}: {type(error).__name__}: {error}"] += 1

    def _whole(self, generator: random.Random) -> None:
        name, (method, path, body) = generator.choice([*REQUESTS.items()])
        status, data = self._ask(method, path, body)
        with self._lock:
            self.done[name] += 1
            if status == 429:
                self.done["429"] += 1
            elif status != 200 or not isinstance(json.loads(data), dict):
                self.faults[f"{path} is answered {status}: {data[:100]!r}"] += 1

    def _leave(self, generator: random.Random) -> None:
        """Send a request or part of it, and leave after a moment."""
        method, path, body = generator.choice([*REQUESTS.values()])
        streamed = path.endswith("analyse") and generator.random() < 0.5
        if streamed:
            body = {"infinite": True, "report_every": 0.05}
        text = json.dumps(body).encode()
        accept = "application/x-ndjson" if streamed else "*/*"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        data = head.encode() + text
        with socket.create_connection(("127.0.0.1", self._port), WAIT_S) as connection:
            connection.sendall(data[: generator.choice([len(data), len(data), len(data) // 2])])
            self._ends.wait(generator.choice([0.0, 0.01, 0.1, 0.5]))
        with self._lock:
            self.done["left"] += 1

    def _flood(self, generator: random.Random) -> None:
        status, _ = self._ask("POST", "/api/v1/evaluate", generator.choice(BODIES))
        with self._lock:
            self.done["8 MB"] += 1
            if status not in (413, 429):
                self.faults[f"a body of 8 MB is answered {status}"] += 1

    def _review(self) -> None:
        games = "\n\n".join("1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *" for _ in range(20))
        status, data = self._ask("POST", "/api/v1/review", {"pgn": games, "nodes": 20})
        if status != 202:
            self.faults[f"a review is answered {status}: {data[:100]!r}"] += 1
            return
        where = f"/api/v1/review/{json.loads(data)['id']}"
        self._ends.wait(0.5)
        if self._ask("GET", where, None)[0] != 200 or self._ask("DELETE", where, None)[0] != 204:
            self.faults["a review is lost"] += 1
        self.done["review"] += 1

    def _metric(self, name: str) -> float:
        text = self._ask("GET", "/metrics", None)[1].decode()
        found = re.search(rf"^wavefront_analysis_{name} (\S+)$", text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    def _ask(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class Lichess(Trouble):
    """Jobs of lichess's analysis board for `wavefront lichess`, with a stand-in of the broker."""

    def __init__(self, address: str, folder: Path, pause_s: float) -> None:
        super().__init__(pause_s)
        self._broker = Broker()
        url = f"http://127.0.0.1:{self._broker.port}"
        words = ["--evaluator", address, "--lichess", url, "--broker", url]
        log, token = folder / "lichess.log", "lip_a-token-of-the-soak"
        self._process = _started(log, "lichess", *words, LICHESS_API_TOKEN=token)

    def step(self, number: int) -> None:
        made: list[Record] = [
            self._broker.ask(f"{number}-{session}", session=str(session), movetime=300)
            for session in range(3)
        ]
        for record in made:
            if not record.done.wait(WAIT_S) or record.error or not record.best_move:
                self.faults[f"a job was not answered: {record.error}"] += 1
            self.done["job"] += 1

    def stop(self) -> None:
        super().stop()
        self.close()

    def close(self) -> None:
        """Kill the provider. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._broker.close()

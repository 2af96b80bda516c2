# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in on loopback for lichess's two hosts of the external-engine protocol, by the rules of its broker.

`Broker(port)` serves /api/external-engine (registration), /api/external-engine/work (long poll) and
/api/external-engine/work/ID (the engine's UCI text, chunked). `ask(work)` queues a job and returns its
record, which fills while the provider answers. A line with a word that the broker does not know makes the
record `error`.
"""

import json
import queue
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NUMBERS = {"depth", "seldepth", "time", "nodes", "multipv", "hashfull", "nps", "tbhits", "currmovenumber"}
MOVE = re.compile("[a-h][1-8][a-h][1-8][qrbn]?")
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
ENGINE = {
    "id": "eei_test",
    "name": "test",
    "clientSecret": "ees_test",
    "userId": "user",
    "maxThreads": 8,
    "maxHash": 512,
    "variants": ["chess"],
    "providerData": None,
}


def parsed(line: str) -> dict[str, Any]:
    """Return an info line's fields. Raises ValueError for a word that the broker refuses."""
    words = iter(line.split()[1:])
    found: dict[str, Any] = {}
    for word in words:
        if word in NUMBERS:
            found[word] = int(next(words))
        elif word == "score":
            found["score"] = (next(words), int(next(words)))
        elif word in ("lowerbound", "upperbound"):
            found[word] = True
        elif word == "wdl":
            found["wdl"] = [int(next(words)) for _ in range(3)]
        elif word == "pv":
            found["pv"] = moves = list(words)
            if not all(MOVE.fullmatch(move) for move in moves):
                raise ValueError(line)
        elif word == "string":
            break
        else:
            raise ValueError(f"unknown word {word!r} in {line!r}")
    return found


@dataclass
class Record:
    """What came back for a job."""

    asked: float
    lines: int = 0
    blocks: list[list[dict[str, Any]]] = field(default_factory=list)
    first: float | None = None
    best_move: str | None = None
    error: str | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Broker:
    """Serves on 127.0.0.1 until `close`. registered: bodies of registrations. records: by job."""

    def __init__(self, port: int = 0) -> None:
        self.jobs: queue.Queue[dict[str, Any]] = queue.Queue()
        self.records: dict[str, Record] = {}
        self.registered: list[dict[str, Any]] = []
        handler = type("Handler", (_Handler,), {"broker": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def ask(
        self, job: str, *, session: str = "1", fen: str = START, moves: tuple[str, ...] = (), **work: object
    ) -> Record:
        """Queue a job; work: one of movetime, depth, nodes; multiPv, threads, hash."""
        record = self.records[job] = Record(time.perf_counter())
        usual = {"sessionId": session, "threads": 1, "hash": 64, "multiPv": 1, "variant": "chess"}
        whole = usual | {"initialFen": fen, "moves": list(moves)} | work
        self.jobs.put({"id": job, "engine": ENGINE, "work": whole})
        return record

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    broker: Broker

    def log_message(self, *_: object) -> None:
        pass

    def _json(self, content: object, code: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_GET(self) -> None:
        self._json([])

    def do_POST(self) -> None:
        if self.path == "/api/external-engine":
            self.broker.registered.append(json.loads(self._body()))
            self._json({"id": "eei_test", "clientSecret": "ees_test"})
        elif self.path == "/api/external-engine/work":
            self._body()
            try:
                self._json(self.broker.jobs.get(timeout=10))
            except queue.Empty:
                self.send_response(204)
                self.send_header("content-length", "0")
                self.end_headers()
        else:
            self._answer(self.broker.records[self.path.rsplit("/", 1)[1]])

    def _answer(self, record: Record) -> None:
        rest = b""
        block: list[Any] = []
        try:
            while size := int(self.rfile.readline().strip() or b"0", 16):
                rest += self.rfile.read(size)
                self.rfile.readline()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    block = self._take(record, line.decode().strip(), block)
            self.rfile.readline()
        except (ValueError, OSError) as error:
            record.error = str(error)
        record.done.set()
        self._json({"ok": record.error is None}, 400 if record.error else 200)

    def _take(self, record: Record, line: str, block: list[Any]) -> list[Any]:
        record.lines += 1
        if line.startswith("bestmove"):
            record.best_move = line.split()[1]
        if not line.startswith("info"):
            return block
        info = parsed(line)
        number = int(info.get("multipv", 1))
        block = [None] * len(block) if number == 1 else block
        block = block + [None] * (number - len(block))
        if {"score", "pv", "depth"} <= info.keys() and not {"lowerbound", "upperbound"} & info.keys():
            block[number - 1] = info
        if block and all(block):
            record.blocks.append(list(block))
            record.first = record.first or time.perf_counter() - record.asked
        return block

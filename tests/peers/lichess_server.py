# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the part of the Lichess API that a bot uses, on the loopback interface.

It sends one challenge, referees the game that follows, and plays the other side with random moves. Whatever
the bot posts is recorded.
"""

import json
import queue
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import chess

BOT, OPPONENT, GAME = "WavefrontBot", "Somebody", "abcd1234"

KEEPALIVE_SECONDS = 2.0
"""An empty line is sent after this time without an event, as Lichess does."""

MOST_PLIES = 80
"""Here the opponent resigns, so that the test has an end."""


class LichessServer:
    """The server and its one game; use it as a context manager.

    base_s: the clock, without an increment. bot_is_white: the bot's side. finished: set at the end of the
    game, with `status` and `winner` ("white", "black" or ""). errors: what the bot did wrong.
    """

    def __init__(self, *, base_s: float, bot_is_white: bool) -> None:
        self.board = chess.Board()
        self.status, self.winner = "started", ""
        self.finished = threading.Event()
        self.errors: list[str] = []
        self.posts: list[str] = []
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.states: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._clocks_ms = {side: round(1000 * base_s) for side in chess.COLORS}
        self._bot = chess.WHITE if bot_is_white else chess.BLACK
        self._random = random.Random(1)
        self._turn_began = time.perf_counter()
        self._base_ms = round(1000 * base_s)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"
        self.events.put({"type": "challenge", "challenge": self._challenge()})

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    # -- what the API answers ------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """Return the JSON answer of a GET, None for an unknown path."""
        if path == "/api/account":
            return {"id": BOT.lower(), "username": BOT, "title": "BOT", "perfs": {}}
        if path == "/api/account/playing":
            return {"nowPlaying": []}
        if path == "/api/users/status":
            return [{"id": BOT.lower(), "name": BOT, "online": True}]
        return None

    def post(self, path: str, body: str) -> dict[str, Any]:
        """Do what a POST asks for and return the JSON answer, which has `error` if it is refused."""
        self.posts.append(path)
        if path == "/api/token/test":
            return {body: {"scopes": "bot:play", "userId": BOT.lower()}}
        reason = self._done(path)
        return {"error": reason} if reason else {"ok": True}

    def _done(self, path: str) -> str:
        """Do what a POST asks for and return the reason why it is refused, empty if it is not."""
        parts = path.strip("/").split("/")
        if path == f"/api/challenge/{GAME}/accept":
            self.events.put({"type": "gameStart", "game": self._game()})
            return ""
        if parts[:3] != ["api", "bot", "game"] or parts[3] != GAME:
            return f"unknown: {path}"
        if parts[4] == "move":
            return self._move(parts[5])
        if parts[4] in ("resign", "abort"):
            self._end("resign", not self._bot)
        return ""

    def full(self) -> dict[str, Any]:
        """Return the first line of a game stream."""
        bot, opponent = {"id": BOT.lower(), "name": BOT, "title": "BOT"}, {"id": "s", "name": OPPONENT}
        return {
            "type": "gameFull",
            "id": GAME,
            "speed": "blitz",
            "rated": False,
            "variant": {"key": "standard", "name": "Standard"},
            "perf": {"name": "Blitz"},
            "createdAt": 1_760_000_000_000,
            "clock": {"initial": self._base_ms, "increment": 0},
            "initialFen": "startpos",
            "white": bot if self._bot == chess.WHITE else opponent,
            "black": opponent if self._bot == chess.WHITE else bot,
            "state": self.state(),
        }

    def state(self) -> dict[str, Any]:
        """Return the line of a game stream for the game as it stands."""
        described = {
            "type": "gameState",
            "moves": " ".join(move.uci() for move in self.board.move_stack),
            "wtime": self._clocks_ms[chess.WHITE],
            "btime": self._clocks_ms[chess.BLACK],
            "winc": 0,
            "binc": 0,
            "status": self.status,
        }
        return described | ({"winner": self.winner} if self.winner else {})

    def begin(self) -> None:
        """Start the game, once the bot follows it."""
        with self._lock:
            self._turn_began = time.perf_counter()
            if self._bot == chess.BLACK and not self.board.move_stack:
                self._answer()

    # -- the game ------------------------------------------------------------------------------------------

    def _move(self, text: str) -> str:
        """Play a move of the bot and the opponent's answer."""
        with self._lock:
            if self.finished.is_set():
                return "the game is over"
            move = chess.Move.from_uci(text)
            if self.board.turn != self._bot or move not in self.board.legal_moves:
                self.errors.append(f"{text} in {self.board.fen()}")
                return "not a legal move here"
            # As on Lichess, the clocks start after the first move of each side.
            if len(self.board.move_stack) >= 2:
                spent_ms = round(1000 * (time.perf_counter() - self._turn_began))
                self._clocks_ms[self._bot] -= spent_ms
                if self._clocks_ms[self._bot] < 0:
                    self.errors.append(f"out of time by {-self._clocks_ms[self._bot]} ms")
            self.board.push(move)
            if not self._over():
                self._answer()
            return ""

    def _answer(self) -> None:
        """Play the opponent's move and send the state."""
        if len(self.board.move_stack) >= MOST_PLIES:
            self._end("resign", self._bot)
            return
        self.board.push(self._random.choice(list(self.board.legal_moves)))
        if not self._over():
            self._turn_began = time.perf_counter()
            self.states.put(self.state())

    def _over(self) -> bool:
        """End the game if the board says so; returns whether it did."""
        outcome = self.board.outcome(claim_draw=True)
        if outcome is None:
            return False
        mate = outcome.termination == chess.Termination.CHECKMATE
        self._end("mate" if mate else "draw", outcome.winner)
        return True

    def _end(self, status: str, winner: bool | None) -> None:
        self.status = status
        self.winner = "" if winner is None else chess.COLOR_NAMES[winner]
        self.states.put(self.state())
        self.events.put({"type": "gameFinish", "game": self._game()})
        self.finished.set()

    def _game(self) -> dict[str, Any]:
        return {
            "id": GAME,
            "gameId": GAME,
            "fullId": GAME,
            "color": chess.COLOR_NAMES[self._bot],
            "speed": "blitz",
            "isMyTurn": self.board.turn == self._bot,
            "opponent": {"id": "s", "username": OPPONENT},
        }

    def _challenge(self) -> dict[str, Any]:
        return {
            "id": GAME,
            "rated": False,
            "speed": "blitz",
            "variant": {"key": "standard", "name": "Standard"},
            "perf": {"name": "Blitz"},
            "color": chess.COLOR_NAMES[not self._bot],
            "finalColor": chess.COLOR_NAMES[not self._bot],
            "timeControl": {"type": "clock", "limit": self._base_ms // 1000, "increment": 0},
            "challenger": {"id": "s", "name": OPPONENT, "rating": 1500},
            "destUser": {"id": BOT.lower(), "name": BOT, "title": "BOT", "rating": 1500},
        }


def _handler(server: LichessServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/api/stream/event":
                self._stream(server.events)
            elif path == f"/api/bot/game/stream/{GAME}":
                self._stream(server.states, server.full())
            else:
                self._answer(server.get(path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            answer = server.post(self.path.partition("?")[0], body)
            self._answer(answer, 400 if "error" in answer else 200)

        def _answer(self, content: Any, status: int = 200) -> None:
            data = json.dumps(content).encode()
            self.send_response(404 if content is None else status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, lines: queue.SimpleQueue[dict[str, Any]], *first: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for line in first:
                    self._chunk(json.dumps(line))
                    server.begin()
                while True:
                    try:
                        state = lines.get(timeout=KEEPALIVE_SECONDS)
                    except queue.Empty:
                        self._chunk("")
                        continue
                    self._chunk(json.dumps(state))
                    if state.get("type") == "gameState" and state["status"] != "started":
                        break
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True  # The bot has gone.

        def _chunk(self, text: str) -> None:
            data = text.encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler

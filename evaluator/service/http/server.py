# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP server with limits on connections, bytes and time, against unauthenticated clients.

One thread per connection, one request per connection (HTTP/1.0), GET and HEAD.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from protocol.host.crowd import REFUSAL, Crowd, source_of

log = logging.getLogger("evaluator.service")

REQUEST_S = 10.0
"""Time limit for receiving a request."""

ANSWER_S = 10.0
"""Time limit for sending an answer."""

MOST_CONNECTIONS = 64
"""Concurrent connections. One more displaces a silent one (protocol.host.crowd) or is refused."""

RESERVED = 8
"""Additional connections for clients of this machine, for when no other connection can be displaced."""

ACCEPT_PAUSE_S = 0.1
"""Pause after no connection could be accepted for lack of descriptors."""


class Handler(BaseHTTPRequestHandler):
    """Handles one request. Subclasses define do_GET, which calls `answer` once."""

    server: Server
    server_version = "wavefront"
    sys_version = ""

    def setup(self) -> None:
        """Limit the time for reading the request, however slowly it arrives."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Timely(self.connection, REQUEST_S))

    def parse_request(self) -> bool:
        """Parse the request and note that it has arrived."""
        if not super().parse_request():
            return False
        self.server.received(self.connection)
        self.connection.settimeout(ANSWER_S)  # for the whole answer: sendall subtracts the time it took
        return True

    def do_HEAD(self) -> None:
        """Answer like GET, without the body."""
        self.do_GET()  # type: ignore[attr-defined]

    def answer(self, code: int, body: bytes, content_type: str, **headers: str) -> None:
        """Send an answer. headers: further ones, with _ instead of -."""
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send http.server's own errors as text, without repeating the request."""
        # A status line and a body are sent even for an invalid request.
        self.command, self.request_version = "GET", "HTTP/1.0"
        short, long = self.responses.get(code, ("", ""))
        self.answer(code, f"{short}: {long}\n".encode(), "text/plain; charset=utf-8")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests."""


class Server(ThreadingHTTPServer):
    """The server at an IPv4 or IPv6 address."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        """Raises OSError."""
        self._lock = threading.Lock()
        self._open = 0
        self._silent: Crowd[socket.socket] = Crowd(MOST_CONNECTIONS)
        """Connections that have not sent their request yet."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def received(self, connection: socket.socket) -> None:
        """Note that a connection's request has arrived."""
        with self._lock:
            self._silent.remove(connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)  # the caller retries at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        source = source_of(client_address[0])
        most = MOST_CONNECTIONS + (RESERVED if is_loopback(source) else 0)
        with self._lock:
            displaced = self._silent.displaced_by(source)
            if displaced is None and self._open >= most:
                displaced = self._silent.victim()
            if displaced is not None:
                self._silent.remove(displaced)
                _refuse(displaced)
            # Displaced connections count until their threads have noticed the end.
            taken = self._open < most or (displaced is not None and self._open < 2 * MOST_CONNECTIONS)
            if taken:
                self._open += 1
                self._silent.add(request, source)
        if not taken:
            _refuse(request)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread could not be started
            self._ended(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors of the service, but no disconnects of clients."""
        fault = sys.exception()
        if not isinstance(fault, OSError):
            log.error("a request by HTTP was not answered", exc_info=fault)

    def _ended(self, request: socket.socket) -> None:
        with self._lock:
            self._open -= 1
            self._silent.remove(request)


class _Timely(io.RawIOBase):
    """A stream of a connection's data with one time limit for all reads."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def is_loopback(source: str) -> bool:
    """Return True if a source (source_of) is this machine."""
    return source.startswith("127.") or source == source_of("::1")


def _refuse(connection: socket.socket) -> None:
    """Send a connection the refusal, and close it."""
    with contextlib.suppress(OSError):  # the client may be gone
        connection.send(REFUSAL)
        connection.shutdown(socket.SHUT_RDWR)

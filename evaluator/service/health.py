"""An HTTP endpoint for health checks and Prometheus: /live, /ready and /metrics."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import prometheus_client

from evaluator.service.prometheus import registry
from evaluator.service.service import EvaluatorService

IDLE_S = 10.0
"""A connection on which nothing comes for this long is closed."""

MOST_CONNECTIONS = 64
"""At a time; one more is closed at once."""

ACCEPT_PAUSE_S = 0.1
"""Pause when no connection can be accepted because there is no descriptor for it."""


@contextlib.contextmanager
def serve_health(address: str, port: int, service: EvaluatorService) -> Iterator[int]:
    """Serve on an IPv4 or IPv6 address while the context lasts; gives the port (0 picks one). Raises
    OSError."""
    metrics = registry(service.metrics, service.state)
    prometheus_client.ProcessCollector(registry=metrics)

    class Handler(prometheus_client.MetricsHandler):
        registry = metrics
        timeout = IDLE_S

        def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
            path = urlsplit(self.path).path
            if path == "/metrics" and self.command == "GET":
                super().do_GET()
            elif path == "/metrics":
                self._answer(200, "")
            elif path == "/live":
                self._answer(200, "live\n")
            elif path == "/ready":
                state = service.state()
                self._answer(200 if state.ready else 503, f"{state.state}\n")
            else:
                self._answer(404, "there is /live, /ready and /metrics\n")

        def do_HEAD(self) -> None:  # noqa: N802
            self.do_GET()

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    server = Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, as far as MOST_CONNECTIONS allow."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)  # It would be asked again at once.
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is no news."""

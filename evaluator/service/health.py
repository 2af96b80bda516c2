"""An HTTP endpoint on loopback for health checks and Prometheus: /live, /ready and /metrics."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from evaluator.metrics import prometheus_text


@contextlib.contextmanager
def serve_health(port: int, status: Callable[[], dict[str, Any]]) -> Iterator[int]:
    """Serve on 127.0.0.1 while the context lasts; gives the port (0 picks one). Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/live":
                self._answer(200, "live\n")
            elif self.path == "/ready":
                ready = bool(status()["ready"])
                self._answer(200 if ready else 503, "ready\n" if ready else "loading\n")
            elif self.path == "/metrics":
                self._answer(200, prometheus_text(status()), "text/plain; version=0.0.4; charset=utf-8")
            else:
                self._answer(404, "there is /live, /ready and /metrics\n")

        def _answer(self, code: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Scrapes are not news."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()

"""An HTTP endpoint on loopback for health checks and Prometheus: /live, /ready and /metrics."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import prometheus_client

from evaluator.service.prometheus import registry
from evaluator.service.service import EvaluatorService


@contextlib.contextmanager
def serve_health(port: int, service: EvaluatorService) -> Iterator[int]:
    """Serve on 127.0.0.1 while the context lasts; gives the port (0 picks one). Raises OSError."""
    metrics = registry(service.metrics, service.state)

    class Handler(prometheus_client.MetricsHandler):
        registry = metrics

        def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
            if self.path == "/live":
                self._answer(200, "live\n")
            elif self.path == "/ready":
                ready = service.state().ready
                self._answer(200 if ready else 503, "ready\n" if ready else "loading\n")
            elif self.path.partition("?")[0] == "/metrics":
                super().do_GET()
            else:
                self._answer(404, "there is /live, /ready and /metrics\n")

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()

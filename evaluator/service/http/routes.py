# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP routes: /live and /ready for health checks, /metrics for Prometheus, the status page at /.

The page's files are under /page/, its JSON document at /status.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

import prometheus_client

from evaluator import page
from evaluator.service.http.overview import StatusDocument
from evaluator.service.http.prometheus import registry
from evaluator.service.http.server import Handler, Server
from evaluator.service.record import Service

KEPT_S = 0.5
"""Minimum age of a document before it is built again, however many clients request it."""

TEXT = "text/plain; charset=utf-8"


@contextlib.contextmanager
def serve_health(address: str, port: int, service: Service, hosts: Sequence[str] = ()) -> Iterator[int]:
    """Context manager that serves on an IPv4 or IPv6 address and gives the port. port: 0 picks one. hosts:
    further host names for the page. Raises OSError."""
    metrics = registry(service.metrics, service.state)
    prometheus_client.ProcessCollector(registry=metrics)
    document = StatusDocument(service)
    status = _Kept(lambda: json.dumps(document.get(), allow_nan=False).encode())
    names = _own_names() | {host.lower().rstrip(".") for host in hosts}

    class Routes(Handler, prometheus_client.MetricsHandler):
        registry = metrics

        def do_GET(self) -> None:  # noqa: N802 - name required by http.server
            path = self.path.partition("?")[0]
            if path == "/metrics" and self.command == "GET":
                prometheus_client.MetricsHandler.do_GET(self)
            elif path == "/metrics":
                self.answer(200, b"", TEXT)
            elif path == "/live":
                self.answer(200, b"live\n", TEXT)
            elif path == "/ready":
                state = service.state()
                self.answer(200 if state.ready else 503, f"{state.state}\n".encode(), TEXT)
            elif path == "/status" or path in page.files():
                self._page(path)
            else:
                self.answer(404, b"there is /, /status, /live, /ready and /metrics\n", TEXT)

        def _page(self, path: str) -> None:
            if not _may_ask(self.headers.get("Host", ""), names):
                self.answer(421, b"not by this name: ask by address, or see the setting page_host\n", TEXT)
            elif path == "/status":
                headers = page.HEADERS | {"Cache_Control": "no-store"}
                self.answer(200, status.get(), "application/json", **headers)
            else:
                file = page.files()[path]
                self.answer(200, file.body, file.content_type, **page.HEADERS)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server((address, port), Routes))
        stack.enter_context(document.running())
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        stack.callback(server.shutdown)
        yield int(server.server_address[1])


def _own_names() -> set[str]:
    """Return the names of this machine."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return {"localhost", name, short, f"{short}.local"}


def _may_ask(host: str, names: set[str]) -> bool:
    """Return True if a Host header has an IP address or a name of this machine.

    Prevents DNS rebinding: a web page elsewhere can point its own name here after a browser has opened it,
    and read what that browser may read. Its requests then have its own name as Host.
    """
    if not host:  # HTTP/1.0; browsers always send the header
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        if name in names or name.endswith(".localhost"):
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Kept:
    """Caches the result of `make` for KEPT_S seconds."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made = b""
        self._until = 0.0

    def get(self) -> bytes:
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._made = self._make()
                self._until = time.monotonic() + KEPT_S
            return self._made

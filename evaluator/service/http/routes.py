# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP routes: /live and /ready for health checks, /metrics for Prometheus, the status page at /.

The page's files are under /page/, its JSON document at /status.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import prometheus_client
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from evaluator import page
from evaluator.service.http.overview import StatusDocument
from evaluator.service.http.prometheus import registry
from evaluator.service.record import ServiceParts
from protocol.common.http.access import AccessCheck
from protocol.common.http.middleware import Middleware
from protocol.common.http.server import HttpLimits, HttpServer

log = logging.getLogger("evaluator.service")

KEPT_S = 0.5
"""Minimum age of a document before it is built again, however many clients request it."""


@contextlib.contextmanager
def serve_health(address: str, port: int, service: ServiceParts, hosts: Sequence[str] = ()) -> Iterator[int]:
    """Context manager that serves on an IPv4 or IPv6 address and gives the port. port: 0 picks one. hosts:
    further host names for the page. Raises OSError."""
    document = StatusDocument(service)
    check = AccessCheck(hosts=tuple(hosts), setting="page_host")
    app = Middleware(_application(service, document), lambda: check, public=("/live", "/ready"), log=_log)
    with document.running(), _in_thread(HttpServer(app, HttpLimits()), address, port) as bound:
        yield bound


def _application(service: ServiceParts, document: StatusDocument) -> Router:
    metrics = registry(service.metrics, service.state)
    prometheus_client.ProcessCollector(registry=metrics)
    status = _Kept(lambda: json.dumps(document.get(), allow_nan=False).encode())

    async def live(_: Request) -> Response:
        return PlainTextResponse("live\n")

    async def ready(request: Request) -> Response:
        state, name = service.state(), request.query_params.get("class")
        text = "".join([f"{each}\n" for each in (state.state, *state.stalled.values())])
        return PlainTextResponse(text, 200 if state.ready and name not in state.stalled else 503)

    async def file(request: Request) -> Response:
        found = page.files()[request.url.path]
        return Response(found.body, media_type=found.content_type)

    # Functions that are no coroutines run in another thread each.
    def scraped(request: Request) -> Response:
        encoder, kind = prometheus_client.exposition.choose_encoder(request.headers.get("accept", ""))
        names = request.query_params.getlist("name[]")
        chosen = metrics.restricted_registry(names) if names else metrics
        return Response(encoder(chosen), media_type=kind)

    def status_page(_: Request) -> Response:
        return Response(status.get(), media_type="application/json", headers={"Cache-Control": "no-store"})

    async def missing(scope: Scope, receive: Receive, send: Send) -> None:
        text = "there is /, /status, /live, /ready and /metrics\n"
        await PlainTextResponse(text, 404)(scope, receive, send)

    routes = [
        Route("/live", live),
        Route("/ready", ready),
        Route("/metrics", scraped),
        Route("/status", status_page),
        *(Route(path, file) for path in page.files()),
    ]
    return Router(routes, redirect_slashes=False, default=missing)


@contextlib.contextmanager
def _in_thread(server: HttpServer, address: str, port: int) -> Iterator[int]:
    """Context manager that runs a server in a thread with a loop, and gives the port. Raises OSError."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="health", daemon=True)
    thread.start()
    try:
        _, bound = asyncio.run_coroutine_threadsafe(server.start(address, port, log.warning), loop).result()
        try:
            yield bound
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _log(text: str, fault: BaseException | None) -> None:
    log.error(text, exc_info=fault)


class _Kept:
    """Caches the result of `make` for KEPT_S seconds."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made = b""
        self._until = 0.0

    def get(self) -> bytes:
        with self._lock:
            now = time.perf_counter()
            if now >= self._until:
                self._made = self._make()
                self._until = time.perf_counter() + KEPT_S
            return self._made

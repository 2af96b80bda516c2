# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of `wavefront web`: tokens, metrics, and the end. WebService has the other routes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from engine.apps.analysis.actions import STATES
from engine.apps.web.service import WebService
from protocol.common.http.access import AccessCheck, ListenAddress
from protocol.common.http.middleware import HttpError, Middleware
from protocol.common.http.server import HttpLimits, HttpServer
from protocol.common.settings.spec import SettingsError, shown

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from engine.apps.analysis.scheduler import QueryScheduler
    from engine.apps.web.limits import ApiSettings

PUBLIC = ("/health", "/live", "/ready")
"""Paths for health checks, which everyone may ask for."""

DRAIN_S = 10.0
"""Time for running requests to end when the service stops."""


class WebServer:
    """Only the event loop may use it."""

    def __init__(
        self,
        service: WebService,
        scheduler: QueryScheduler,
        settings: ApiSettings,
        read_check: Callable[[], AccessCheck],
        log: Callable[[str], None],
        certificate: Sequence[str] = (),
    ) -> None:
        """read_check: returns a check from the token file; raises SettingsError. log: receives messages for
        the operator. certificate: see HttpServer. Raises SettingsError, and OSError for a certificate that
        cannot be read."""
        self._check = read_check()
        self._read_check = read_check
        self._service = service
        self._scheduler = scheduler
        self._log = log
        routes = [*service.routes(), Route("/metrics", self._metrics)]
        self._middleware = Middleware(
            partial(_routed, Router(routes, redirect_slashes=False, default=_no_page)),
            lambda: self._check,
            public=PUBLIC,
            without_token=service.without_token,
            body_bytes=settings.max_body_bytes,
            log=self._tell,
        )
        self._server = HttpServer(self._middleware, HttpLimits(settings.max_connections), certificate)
        self._stopped = asyncio.Event()

    async def run(self, address: ListenAddress, on_listening: Callable[[str, int], None]) -> None:
        """Serve until `stop` or SIGTERM. on_listening: called with host and port once clients can connect.
        Raises OSError if it cannot listen."""
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no such signals.
            self._loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
            self._loop.add_signal_handler(signal.SIGHUP, self.reload)
        host, port = await self._server.start(address.host, address.port, self._log)
        try:
            on_listening(f"[{host}]" if ":" in host else host, port)
            await self._stopped.wait()
            self._middleware.draining = True
            self._service.end_infinite()
            end = self._loop.time() + DRAIN_S
            while self._middleware.in_flight and self._loop.time() < end:
                await asyncio.sleep(DRAIN_S / 200)
        finally:
            await self._server.close()

    def stop(self) -> None:
        """Stop the service. Thread-safe, after on_listening was called."""
        with contextlib.suppress(RuntimeError):  # It has ended.
            self._loop.call_soon_threadsafe(self._stopped.set)

    def reload(self) -> None:
        """Reload the tokens, and end the searches of clients whose token was removed."""
        old = self._check.tokens
        try:
            self._check = self._read_check()
        except SettingsError as error:
            self._log(f"the tokens stay as they were: {error}")
            return
        tokens = self._check.tokens
        ended = self._service.end_of({name for name, token in old.items() if tokens.get(name) != token})
        self._log(f"{len(tokens)} tokens read, {ended} requests ended")

    async def _metrics(self, _: Request) -> Response:
        # Imported here, because the import of prometheus_client takes 0.1 s.
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(support_collectors_without_names=True)
        registry.register(self)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(generate_latest(registry), headers={"Content-Type": kind})

    def collect(self) -> Iterator[Metric]:
        """Yield the current value of every metric."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        prefix, (searching, waiting) = "wavefront_analysis_", self._scheduler.load()
        pool, (games, moves) = self._scheduler.pool, self._service.load()
        state = GaugeMetricFamily(f"{prefix}state", "1 for the evaluator's state.", labels=["state"])
        for name in STATES:
            state.add_metric([name], name == self._scheduler.state)
        yield state
        for name, text, value in (
            ("silent_connections", "Connections without a request.", self._server.idle_connections),
            ("requests_in_flight", "Running requests.", self._middleware.in_flight),
            ("searching_positions", "Positions in search.", max(searching, pool.searching) + games),
            ("searching_games", "Positions in search for a move of a game.", games),
            ("waiting_positions", "Positions waiting for a search.", waiting),
        ):
            yield GaugeMetricFamily(f"{prefix}{name}", text, value=value)
        for name, text, value in (
            ("searches", "Searches of queries and reviews.", pool.statistics().searches),
            ("game_moves", "Searches for a move of a game.", moves),
        ):
            yield CounterMetricFamily(f"{prefix}{name}", text, value=value)
        refused = CounterMetricFamily(
            f"{prefix}refused_connections", "Refused requests by HTTP status.", labels=["status"]
        )
        for status, count in sorted(self._middleware.refused.items()):
            refused.add_metric([str(status)], count)
        yield refused

    def _tell(self, text: str, fault: BaseException | None) -> None:
        self._log(text if fault is None else f"{text}: {type(fault).__name__}: {fault}")


async def _no_page(scope: Scope, receive: Receive, send: Send) -> None:
    raise HttpError(404, f"there is no page {shown(scope['path'])}")


async def _routed(router: Router, scope: Scope, receive: Receive, send: Send) -> None:
    """Let a router answer. Raises HttpError where it would answer with an error of its own."""
    try:
        await router({**scope, "app": router}, receive, send)
    except HTTPException as error:
        allowed = {name: each for name, each in (error.headers or {}).items() if name == "Allow"}
        message = f"the method is not one of {allowed['Allow']}" if allowed else error.detail
        raise HttpError(error.status_code, message, **allowed) from None

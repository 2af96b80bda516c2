# SPDX-License-Identifier: GPL-3.0-or-later
"""Transport by WebSocket: one message per query and per answer.

    asyncio's thread     passes messages to the scheduler, sends answers from a queue per client
    scheduler's thread   SocketClient.send puts answers into that queue

A client has at most one message in the scheduler's inbox, so that none can crowd out the others. The bytes of
its unread answers are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.analysis.pages import HEALTH, PATHS, ClientInfo, Figures, page
from engine.analysis.scheduler import Scheduler
from protocol.http.access import SUBPROTOCOL, AccessCheck, ListenAddress
from protocol.http.middleware import HttpError, Middleware
from protocol.http.server import HttpLimits, HttpServer
from protocol.settings.spec import SettingsError, shown

PUBLIC = (HEALTH, "/live", "/ready")
"""Paths for health checks, which everyone may ask for."""

CONNECTIONS = 192
"""Connections besides those of clients: requests of pages, and silent ones."""

DRAIN_S = 10.0
"""Time for running requests to end when the service stops."""

_NUMBERS = itertools.count()


class SocketClient:
    """One connection: a Client of the scheduler."""

    def __init__(self, connection: WebSocket, scheduler: Scheduler, name: str, token: str) -> None:
        """name, token: its accepted token."""
        self.name, self.token = name, token
        self.owner = f"token {name}" if token else f"connection {next(_NUMBERS)}"
        self.address = connection.client.host if connection.client else ""
        self.since = time.time()
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._most = scheduler.settings.max_unread_bytes
        self._patience = scheduler.settings.max_unread_seconds
        self._resume = scheduler.resume
        self._unread = 0  # Bytes; only asyncio's thread changes it.
        self._answers: asyncio.Queue[str] = asyncio.Queue()

    def send(self, answer: bytes) -> None:
        text = answer.decode("ascii")
        with contextlib.suppress(RuntimeError):  # The loop and the connection have ended.
            self._loop.call_soon_threadsafe(self._put, text)

    @property
    def congested(self) -> bool:
        return self._unread > self._most // 2

    def done(self) -> None:
        """Do nothing: the client closes the connection."""

    def abort(self) -> None:
        """End the connection without waiting for the client."""
        self._connection.scope["abort"]()

    async def close(self) -> None:
        """Tell the client that the service ends."""
        with contextlib.suppress(Exception):  # The connection has ended.
            await self._connection.close(1001)

    async def write(self) -> None:
        """Write answers until the connection ends, or abort it if the client does not read."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                text = await self._answers.get()
                try:
                    await asyncio.wait_for(self._connection.send_text(text), self._patience)
                except TimeoutError:
                    self.abort()
                    return
                congested = self.congested
                self._unread -= len(text)
                if congested and not self.congested:
                    self._resume(self)

    def _put(self, text: str) -> None:
        self._unread += len(text)
        if self._unread > self._most:
            self.abort()
        else:
            self._answers.put_nowait(text)


class AnalysisServer:
    """Accept connections, and pass clients' messages to the scheduler. Only the event loop may use it."""

    def __init__(
        self,
        scheduler: Scheduler,
        check: AccessCheck,
        reread: Callable[[], AccessCheck],
        *,
        log: Callable[[str], None],
        routes: Sequence[BaseRoute] = (),
        without_token: Callable[[str], bool] = lambda path: False,
        body_bytes: int = 0,
        certificate: Sequence[str] = (),
    ) -> None:
        """reread: returns a new check from the token file; raises SettingsError. log: receives messages for
        the operator. routes: further ones, before the WebSocket on all other paths. The others: see
        Middleware and HttpServer. Raises OSError for a certificate that cannot be read."""
        self.check = check
        self._reread = reread
        self._scheduler = scheduler
        self._most_clients = scheduler.settings.max_clients
        self._log = log
        self._clients: set[SocketClient] = set()
        own: list[BaseRoute] = [Route(path, self._page) for path in PATHS]
        own += [*routes, WebSocketRoute("/{path:path}", self._converse)]
        self._middleware = Middleware(
            partial(_routed, Router(own, redirect_slashes=False, default=_no_page)),
            lambda: self.check,
            public=PUBLIC,
            without_token=without_token,
            body_bytes=body_bytes,
            log=self._tell,
        )
        limits = HttpLimits(self._most_clients + CONNECTIONS, scheduler.settings.max_message_bytes)
        self._server = HttpServer(self._middleware, limits, certificate)
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
            await asyncio.gather(*(client.close() for client in list(self._clients)))
            await self._drained()
        finally:
            await self._server.close()

    def stop(self) -> None:
        """Stop the service. Thread-safe, after on_listening was called."""
        with contextlib.suppress(RuntimeError):  # It has ended.
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _drained(self) -> None:
        """Wait until no request is in flight, for DRAIN_S at most."""
        end = self._loop.time() + DRAIN_S
        while self._middleware.in_flight and self._loop.time() < end:
            await asyncio.sleep(DRAIN_S / 200)

    def reload(self) -> None:
        """Reload the tokens, and disconnect clients whose token was removed."""
        try:
            self.check = self._reread()
        except SettingsError as error:
            self._log(f"the tokens stay as they were: {error}")
            return
        revoked = [each for each in self._clients if self.check.tokens.get(each.name, "") != each.token]
        for client in revoked:
            client.abort()
        self._log(f"{len(self.check.tokens)} tokens read, {len(revoked)} clients disconnected")

    async def _page(self, request: Request) -> Response:
        status, kind, body = page(request.url.path, self._figures())
        return Response(body, status, headers={"Content-Type": kind})

    def _figures(self) -> Figures:
        clients = [
            ClientInfo(client.name, client.address, client.since, *self._scheduler.load(client))
            for client in self._clients
        ]
        idle, busy = self._server.idle_connections, self._middleware.in_flight
        load, refused = self._scheduler.load(), self._middleware.refused
        return Figures(self._scheduler.state, tuple(clients), load, idle, busy, refused)

    async def _converse(self, connection: WebSocket) -> None:
        if len(self._clients) >= self._most_clients:
            raise HttpError(503, "there are too many clients", Retry_After="10")
        scheduler = self._scheduler
        offered = connection.scope["subprotocols"]
        await connection.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        name = connection.scope["client_name"]
        client = SocketClient(connection, scheduler, name, self.check.tokens.get(name, ""))
        self._clients.add(client)
        writing = asyncio.create_task(client.write())
        try:
            while (message := await connection.receive())["type"] == "websocket.receive":
                text = message.get("text")
                await self._hand_over(client, message["bytes"] if text is None else text)
        finally:
            self._clients.discard(client)
            scheduler.leave(client)
            writing.cancel()

    async def _hand_over(self, client: SocketClient, message: str | bytes) -> None:
        """Pass a message to the scheduler, and wait until it is handled."""
        read = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(read.set)

        self._scheduler.receive(client, message, tell)
        await read.wait()

    def _tell(self, text: str, fault: BaseException | None) -> None:
        self._log(text if fault is None else f"{text}: {type(fault).__name__}: {fault}")


async def _no_page(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request of an unknown page: the service speaks WebSocket there."""
    raise HttpError(404, f"there is no page {shown(scope['path'])}")


async def _routed(router: Router, scope: Scope, receive: Receive, send: Send) -> None:
    """Let a router answer. Raises HttpError where it would answer with an error of its own."""
    try:
        await router({**scope, "app": router}, receive, send)
    except HTTPException as error:
        allowed = {name: each for name, each in (error.headers or {}).items() if name == "Allow"}
        message = f"the method is not one of {allowed['Allow']}" if allowed else error.detail
        raise HttpError(error.status_code, message, **allowed) from None

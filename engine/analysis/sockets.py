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
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.typing import Subprotocol

from engine.analysis.access import SUBPROTOCOL, ListenAddress, TokenCheck
from engine.analysis.arrivals import Arrivals, NoRoom, connections_of
from engine.analysis.pages import HEALTH, PATHS, ClientInfo, Figures, page
from engine.analysis.scheduler import Scheduler
from engine.analysis.settings import AnalysisSettings
from protocol.settings.spec import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

PING_SECONDS = 20.0
"""Interval of pings, and timeout of their answers."""

CLOSE_SECONDS = 2.0
"""Timeout for closing a connection."""

TRANSPORT_BYTES = 1 << 16
"""Maximum bytes of answers in the transport's buffer."""

MESSAGES_READ_AHEAD = 2


_NUMBERS = itertools.count()


class SocketClient:
    """One connection: a Client of the scheduler."""

    def __init__(
        self,
        connection: ServerConnection,
        settings: AnalysisSettings,
        resume: Callable[[SocketClient], None],
        name: str,
        token: str,
    ) -> None:
        """resume: called when the client is no longer congested. name, token: its accepted token."""
        self.name, self.token = name, token
        self.owner = f"token {name}" if token else f"connection {next(_NUMBERS)}"
        self.address = _host(connection)
        self.since = time.time()
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._most = settings.max_unread_bytes
        self._patience = settings.max_unread_seconds
        self._resume = resume
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
        """Abort the connection."""
        self._connection.transport.abort()

    async def write(self) -> None:
        """Write answers until the connection ends, or abort it if the client does not read."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                text = await self._answers.get()
                try:
                    # The library's pings wait behind unread answers, so they cannot detect this.
                    await asyncio.wait_for(self._connection.send(text), self._patience)
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
    """Accept connections, and pass clients' messages to the scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        address: ListenAddress,
        check: TokenCheck,
        reread: Callable[[], TokenCheck],
        *,
        most_clients: int,
        log: Callable[[str], None],
    ) -> None:
        """reread: returns a new check from the token file; raises SettingsError. log: receives messages for
        the operator."""
        self._reread = reread
        self._names: dict[ServerConnection, str] = {}
        """Token names of accepted connections that are not clients yet."""
        self._refused: Counter[int] = Counter()
        self._scheduler = scheduler
        self._address = address
        self._check = check
        self._most_clients = most_clients
        self._log = log
        self._arrivals = Arrivals()
        self._clients: set[SocketClient] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    async def run(self, on_listening: Callable[[str], None]) -> None:
        """Serve until `stop` or SIGTERM. on_listening: called with the address once clients can connect.
        Raises OSError if it cannot listen."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(NoRoom(self._log))
        with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no such signals.
            self._loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
            self._loop.add_signal_handler(signal.SIGHUP, self.reload)
        async with serve(
            self._converse,
            self._address.host,
            self._address.port,
            process_request=self._admit,
            select_subprotocol=_select_subprotocol,
            create_connection=connections_of(self._arrivals),
            compression=None,
            max_size=self._scheduler.settings.max_message_bytes,
            max_queue=MESSAGES_READ_AHEAD,
            write_limit=TRANSPORT_BYTES,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            close_timeout=CLOSE_SECONDS,
            logger=_silent_logger(),
        ) as server:
            on_listening(self._url(server))
            await self._stopped.wait()
            server.close()
            try:
                await asyncio.wait_for(server.wait_closed(), CLOSE_SECONDS)
            except TimeoutError:
                for client in self._clients:  # They do not even read the close frame.
                    client.abort()

    def stop(self) -> None:
        """Stop the service. Thread-safe, after on_listening was called."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # It has ended.
            self._loop.call_soon_threadsafe(self._stopped.set)

    def _url(self, server: Server) -> str:
        port = next(iter(server.sockets)).getsockname()[1]
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        return f"ws://{host}:{port}"

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the response to a page request or refused client; None if the client is accepted."""
        self._arrivals.went(connection)
        given = {
            name: ",".join(request.headers.get_all(name))
            for name in ("Authorization", "Origin", "Sec-WebSocket-Protocol")
            if name in request.headers
        }
        refusal = self._check.refusal(given)
        if refusal and request.path != HEALTH:
            status = HTTPStatus.UNAUTHORIZED if self._check.tokens else HTTPStatus.FORBIDDEN
            return self._refuse(connection, status, refusal)
        if request.path in PATHS:
            status, kind, body = page(request.path, self._figures())
            response = connection.respond(status, body)
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = kind
            return response
        if len(self._clients) >= self._most_clients:
            return self._refuse(connection, HTTPStatus.SERVICE_UNAVAILABLE, "there are too many clients")
        self._names[connection] = self._check.name(given) or ""
        return None

    def _refuse(self, connection: ServerConnection, status: HTTPStatus, reason: str) -> Response:
        self._refused[status.value] += 1
        return connection.respond(status, reason + "\n")

    def _figures(self) -> Figures:
        clients = [
            ClientInfo(client.name, client.address, client.since, *self._scheduler.load(client))
            for client in self._clients
        ]
        return Figures(self._scheduler.state, tuple(clients), len(self._arrivals), self._refused)

    def reload(self) -> None:
        """Reload the tokens, and disconnect clients whose token was removed."""
        try:
            self._check = self._reread()
        except SettingsError as error:
            self._log(f"the tokens stay as they were: {error}")
            return
        revoked = [each for each in self._clients if self._check.tokens.get(each.name, "") != each.token]
        for client in revoked:
            client.abort()
        self._log(f"{len(self._check.tokens)} tokens read, {len(revoked)} clients disconnected")

    async def _converse(self, connection: ServerConnection) -> None:
        scheduler = self._scheduler
        name = self._names.pop(connection, "")
        token = self._check.tokens.get(name, "")
        client = SocketClient(connection, scheduler.settings, scheduler.resume, name, token)
        self._clients.add(client)
        writing = asyncio.create_task(client.write())
        try:
            async for message in connection:
                if connection.state is not State.OPEN:
                    break  # Discard messages that arrived before the close.
                await self._hand_over(client, message)
        except ConnectionClosed:
            pass  # Without a close frame.
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


def _host(connection: ServerConnection) -> str:
    """Return the client's address; empty if the connection has ended."""
    peer = connection.transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


def _silent_logger() -> logging.Logger:
    """Return a logger that discards the library's messages: failing connections could fill a log."""
    logger = logging.getLogger("wavefront.analysis.sockets")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


def _select_subprotocol(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Select the protocol's name, if offered: browsers require a selection, and a token must not be it."""
    return next((name for name in offered if name == SUBPROTOCOL), None)

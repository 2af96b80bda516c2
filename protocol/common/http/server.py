# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves an ASGI application, with limits against unauthenticated clients.

uvicorn's protocol class parses. The subclass here bounds the bytes and time of a request's header, and the
time that an answer may stay unread.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from protocol._core import SilentConnections
from protocol.common.http.sources import is_loopback, source_of

HEADER_BYTES = 16 << 10
"""Maximum bytes of a request line and its headers; more are answered with 431."""

READ_BYTES = 1 << 16
"""Maximum bytes that one read takes from a connection."""

REQUEST_S = 10.0
"""Time limit for the header of a request."""

ANSWER_S = 30.0
"""Time without progress after which an unread answer ends its connection."""

LINGER_S = 1.0
"""Time for a refused client to read the reason, while its further bytes are discarded."""

HALF_CLOSED_S = 2.0
"""Time to answer a client that has ended its side. One that has left cannot be told apart from it."""

CLOSE_S = 2.0
"""Time for connections to end when the server stops."""

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"there are too many connections\n"
)
"""Answer of an HTTP server to a connection that it closes in favour of newer ones."""

RESERVED = 8
"""Additional connections for clients of this machine."""

_HEADER_END = re.compile(rb"\n\r?\n")
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REASONS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """connections: concurrent, of all addresses. An address beyond this machine may have half of them,
    and any address a quarter of them idle."""

    connections: int = 64


class Connections:
    """The open connections: idle ones are closed for new ones, busy ones are not."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._idle = SilentConnections(max(1, most // 4))
        self._by_number: dict[int, BoundedHttp] = {}
        """The idle connections."""
        self._source: dict[BoundedHttp, str] = {}
        self._of_source: Counter[str] = Counter()

    @property
    def idle(self) -> int:
        """Number of connections without a request."""
        return len(self._idle)

    def admit(self, connection: BoundedHttp, host: str) -> bool:
        """Add a connection, if need be in place of an idle one. Return False if all are busy."""
        source = source_of(host)
        local = is_loopback(source)
        most = self.most + (RESERVED if local else 0)
        number = self._idle.displaced_by(source.encode())
        if number is None and len(self._source) >= most:
            number = self._idle.victim()
        if number is not None:
            displaced = self._by_number[number]
            self.ended(displaced)
            displaced.displace()
        if len(self._source) >= most or (not local and self._of_source[source] >= self.most // 2):
            return False
        self._source[connection] = source
        self._of_source[source] += 1
        self.is_idle(connection)
        return True

    def is_busy(self, connection: BoundedHttp) -> None:
        """Note that a connection's request has arrived, its body included."""
        self._idle.remove(id(connection))
        self._by_number.pop(id(connection), None)

    def is_idle(self, connection: BoundedHttp) -> None:
        """Note that a connection is open, or its response complete."""
        source = self._source.get(connection)
        if source is not None:
            self._idle.add(id(connection), source.encode())
            self._by_number[id(connection)] = connection

    def ended(self, connection: BoundedHttp) -> None:
        """Remove a connection."""
        self.is_busy(connection)
        source = self._source.pop(connection, None)
        if source is not None:
            self._of_source[source] -= 1
            if not self._of_source[source]:
                del self._of_source[source]


class _State(ServerState):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.bounds = Connections(most)


class _Timer:
    """At most one pending call of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop, self._call = loop, call
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Call after this time, unless a call is pending already."""
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, self._call)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class BoundedHttp(H11Protocol):
    """One connection. It ends if its client does not read an answer for ANSWER_S."""

    server_state: _State

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _limit(transport)
        self._bounds = self.server_state.bounds
        self._refused = False
        self._answered = 0
        self._unread = _Timer(self.loop, transport.abort)
        self._arriving = _Timer(self.loop, lambda: self._refuse(408))
        self._arriving.start(REQUEST_S)
        if not self._bounds.admit(self, self.client[0] if self.client else ""):
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.cancel()
        self._arriving.cancel()
        self._bounds.ended(self)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return True to keep the connection for the answer to its request."""
        is_asked = self.conn.their_state is not h11.SEND_BODY and not self._refused
        if self.scheme == "https" or not is_asked or self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        self.loop.call_later(HALF_CLOSED_S, self.transport.close)
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.start(ANSWER_S)

    def resume_writing(self) -> None:
        self._unread.cancel()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self.conn.their_state is h11.IDLE:
            head = self.conn.trailing_data[0][:HEADER_BYTES] + data
            if _HEADER_END.search(head, 0, HEADER_BYTES) is None and len(head) > HEADER_BYTES:
                self._refuse(431)
                return
            self._arriving.start(REQUEST_S)
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._arriving.cancel()
            if self.conn.their_state is not h11.SEND_BODY:
                self._bounds.is_busy(self)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: clients could fill the log."""

    def on_response_complete(self) -> None:
        self._answered += 1
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self._bounds.is_idle(self)

    def displace(self) -> None:
        """Close an idle connection for a new one. One that has had answers must not read this as another."""
        if not self._answered and (self.cycle is None or not self.cycle.response_started):
            self.transport.write(REFUSAL)
        self.transport.close()

    def _refuse(self, status: int) -> None:
        """Answer an unreadable request, and discard what follows it."""
        self._refused = True
        self._arriving.cancel()
        if self.cycle is None or self.cycle.response_complete:
            reason = _REASONS[status]
            head = f"HTTP/1.1 {status} ".encode() + reason
            self.transport.write(
                head + b"\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + reason + b"\n"
            )
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)


class HttpServer:
    """An application at one address. Only one event loop may use it.

    app: an ASGI application. certificate: PEM files of certificate and key, for TLS.
    """

    def __init__(self, app: Any, limits: HttpLimits, certificate: Sequence[str] = ()) -> None:
        """Raises OSError and ssl.SSLError for a bad certificate."""
        self._config = Config(
            app,
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        self._config.load()
        self._ssl: ssl.SSLContext | None = None
        if certificate:
            self._ssl = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._ssl.load_cert_chain(*certificate)
        self._state = _State(limits.connections)
        self._state.default_headers = [(b"server", b"wavefront")]

    @property
    def idle_connections(self) -> int:
        """Number of connections without a request."""
        return self._state.bounds.idle

    async def start(self, host: str, port: int, log: Callable[[str], None]) -> tuple[str, int]:
        """Listen, and return the address. port: 0 selects a free one. log: receives, at intervals, that no
        connection can be accepted. Raises OSError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_NoRoom(log))
        backlog = max(100, self._state.bounds.most)
        self._server = await loop.create_server(
            lambda: BoundedHttp(self._config, self._state, {}, loop),
            host,
            port,
            ssl=self._ssl,
            backlog=backlog,
        )
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def close(self) -> None:
        """Stop listening, let the running requests end for CLOSE_S, and abort the others."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, rest = await asyncio.wait(self._state.tasks, timeout=CLOSE_S)
            for task in rest:
                task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


TOLD_EVERY_S = 10.0


class _NoRoom:
    """Exception handler of a loop. It logs at intervals that no connection can be accepted, an error that
    asyncio raises a hundred times per second."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + TOLD_EVERY_S
            self._log(f"cannot accept connections: {error}; raise `ulimit -n`")


def _limit(transport: asyncio.Transport) -> None:
    """Bound the bytes of one read, in asyncio 256 KiB, and the time without acknowledgements of a client."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Windows and macOS lack it.
        ms = round(1000 * ANSWER_S)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ms)

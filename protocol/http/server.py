# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves an ASGI application, with limits against unauthenticated clients.

uvicorn's protocol classes parse. The subclasses here bound the bytes and time of a request's header, the
frames of a WebSocket message, and the time that an answer may stay unread.
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState
from wsproto import events

from protocol._core import SilentConnections
from protocol.http.sources import is_loopback, source_of

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

CLOSE_S = 2.0
"""Time for connections to end when the server stops."""

MOST_FRAGMENTS = 4096
"""Frames and reads of one WebSocket message."""

MOST_PINGS = 1000
"""Control frames of a WebSocket in PING_S."""

PING_S = 20.0
"""Interval of WebSocket pings, and timeout of their answers."""

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
    and any address a quarter of them idle. message_bytes: of a WebSocket message."""

    connections: int = 64
    message_bytes: int = 1 << 18


class Connections:
    """The open connections: idle ones are closed for new ones, busy ones are not."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._idle = SilentConnections(max(1, most // 4))
        self._by_number: dict[int, BoundedHttp] = {}
        """The idle connections."""
        self._source: dict[asyncio.BaseTransport, str] = {}
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
            self.ended(displaced, displaced.transport)
            displaced.displace()
        if len(self._source) >= most or (not local and self._of_source[source] >= self.most // 2):
            return False
        self._source[connection.transport] = source
        self._of_source[source] += 1
        self.is_idle(connection)
        return True

    def is_busy(self, connection: BoundedHttp) -> None:
        """Note that a connection's request has arrived."""
        self._idle.remove(id(connection))
        self._by_number.pop(id(connection), None)

    def is_idle(self, connection: BoundedHttp) -> None:
        """Note that a connection is open, or its response complete."""
        source = self._source.get(connection.transport)
        if source is not None:
            self._idle.add(id(connection), source.encode())
            self._by_number[id(connection)] = connection

    def ended(self, connection: BoundedHttp | None, transport: asyncio.BaseTransport) -> None:
        """Remove a connection."""
        if connection is not None:
            self.is_busy(connection)
        source = self._source.pop(transport, None)
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


class _BoundedAnswers(asyncio.Protocol):
    """A connection that ends if its client does not read an answer for ANSWER_S."""

    loop: asyncio.AbstractEventLoop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread = _Timer(self.loop, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.start(ANSWER_S)

    def resume_writing(self) -> None:
        self._unread.cancel()
        super().resume_writing()


class BoundedHttp(_BoundedAnswers, H11Protocol):
    """One connection, until it becomes a WebSocket."""

    server_state: _State

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _limit_reads(transport)
        self._bounds = self.server_state.bounds
        self._refused = False
        self._answered = 0
        self._arriving = _Timer(self.loop, lambda: self._refuse(408))
        self._arriving.start(REQUEST_S)
        if not self._bounds.admit(self, self.client[0] if self.client else ""):
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arriving.cancel()
        self._bounds.ended(self, self.transport)
        super().connection_lost(exc)

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
            self._bounds.is_busy(self)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._arriving.cancel()
        self._bounds.is_busy(self)
        super().handle_websocket_upgrade(event)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: clients could fill the log."""

    def on_response_complete(self) -> None:
        self._answered += 1
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self._bounds.is_idle(self)

    def displace(self) -> None:
        """Close an idle connection for a new one. One that has had answers must not read this as another."""
        if not self._answered:
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


class BoundedWebSocket(_BoundedAnswers, WSProtocol):
    """One WebSocket connection."""

    server_state: _State

    def __init__(self, config: Config, server_state: _State, **more: Any) -> None:
        super().__init__(config, server_state, **more)
        self._bounds = server_state.bounds
        self._fragments = self._pings = 0
        self._pings_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._bounds.ended(None, self.transport)
        super().connection_lost(exc)

    def handle_connect(self, event: events.Request) -> None:
        """Start the application; its scope has `abort`, which ends the connection at once."""
        super().handle_connect(event)
        self.scope["abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        self._fragments = 0 if event.message_finished else self._fragments + 1
        if self._fragments > MOST_FRAGMENTS:
            self._end(1009, f"a message has at most {MOST_FRAGMENTS} fragments")
        else:
            super().handle_message(event)

    def handle_ping(self, event: events.Ping) -> None:
        if self._count_ping():
            super().handle_ping(event)

    def handle_pong(self, event: events.Pong) -> None:
        if self._count_ping():
            super().handle_pong(event)

    def _count_ping(self) -> bool:
        now = self.loop.time()
        if now - self._pings_since > PING_S:
            self._pings, self._pings_since = 0, now
        self._pings += 1
        if self._pings <= MOST_PINGS:
            return True
        self._end(1008, f"at most {MOST_PINGS} control frames in {PING_S:.0f} s")
        return False

    def _end(self, code: int, reason: str) -> None:
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if not self.transport.is_closing():
            self.transport.write(self.conn.send(events.CloseConnection(code=code, reason=reason)))
            self.transport.close()


class HttpServer:
    """An application at one address. Only one event loop may use it.

    app: an ASGI application. certificate: PEM files of certificate and key, for TLS.
    """

    def __init__(self, app: Any, limits: HttpLimits, certificate: Sequence[str] = ()) -> None:
        """Raises OSError and ssl.SSLError for a bad certificate."""
        self._config = Config(
            app,
            http=BoundedHttp,
            ws=BoundedWebSocket,
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
            ws_max_size=limits.message_bytes,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
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
            self._log(f"no connection can be taken: {error}")


def _limit_reads(transport: asyncio.Transport) -> None:
    """Bound what one read may bring: asyncio's own limit is 256 KiB."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES

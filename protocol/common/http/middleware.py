# SPDX-License-Identifier: GPL-3.0-or-later
"""Middleware in front of an application: access, bounds of bodies, request ids, and answers to faults."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from time import perf_counter
from typing import Any

from protocol.common.http.access import AccessCheck
from protocol.common.printing import printable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_S = 30.0
"""Time limit for the body of a request."""

TOO_MANY = 429
"""Status of a request beyond its client's limits."""

CLIENT_LEFT = 499
"""Status of a request whose client left before the answer."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Headers of all answers, unless the application sets them. Only the server's own scripts run, whatever names
clients and networks have."""

_METHODS = b"GET, POST, PUT, DELETE"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class HttpError(Exception):
    """A request is answered with an error. headers: further ones of the answer."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Middleware:
    """ASGI middleware.

    refused: refused requests by HTTP status. in_flight: running requests. draining: refuse new ones.
    `scope["token_name"]` is the name of a request's token or None, and `scope["request_id"]` its id:
    the client's X-Request-Id, or a new one.
    """

    def __init__(
        self,
        app: Any,
        check: Callable[[], AccessCheck],
        *,
        public: Collection[str] = (),
        without_token: Callable[[str], bool] = lambda path: False,
        body_bytes: int = 0,
        log: Callable[[str, BaseException | None], None] = lambda text, fault: None,
        log_prefix: str = "/api/",
    ) -> None:
        """check: returns the current check. public: paths that everyone may read. without_token: whether a
        path needs no token, only an own Host. body_bytes: maximum of a body. log: receives faults with their
        exceptions, and requests of paths with log_prefix: with tokens all, else the refused ones."""
        self._app = app
        self._check = check
        self._public = frozenset(public)
        self._without_token = without_token
        self._most = body_bytes
        self._log = log
        self._log_prefix = log_prefix
        self.refused: Counter[int] = Counter()
        self.in_flight = 0
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        headers = _headers_of(scope)
        given = headers.get("x-request-id", "").encode("latin-1")
        identity = given if _ID.fullmatch(given) else secrets.token_hex(8).encode()
        answer = _Answer(scope, receive, send, identity, self._most)
        check = self._check()
        scope["token_name"] = check.name(headers)
        scope["request_id"] = identity.decode()
        path = scope["path"]
        origin = headers.get("origin", "")
        if origin in check.origins:  # The operator has asked for CORS.
            answer.more = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
            if scope["method"] == "OPTIONS":
                await answer.preflight()
                return
        refusal = None
        if path not in self._public:
            refusal = check.foreign(headers) if self._without_token(path) else check.refusal(headers)
        self.in_flight += 1
        try:
            if self.draining and path not in self._public:
                raise HttpError(503, "the service is ending", Retry_After="10")
            if refusal is not None:
                more = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
                raise HttpError(refusal.status, refusal.reason, **more)
            if "transfer-encoding" in headers and (
                "content-length" in headers or scope["http_version"] == "1.0"
            ):
                raise HttpError(400, "a body's length is given by Content-Length or, in HTTP/1.1, by chunks")
            if int(headers.get("content-length", "0")) > self._most:
                raise HttpError(413, f"the body is longer than {self._most:,} bytes")
            await self._app(scope, answer.receive, answer.send)
        except HttpError as error:
            if error.status != CLIENT_LEFT:
                self.refused[error.status] += 1
            await answer.error(error)
        except Exception as fault:
            self._log("a request by HTTP was not answered", fault)
            await answer.error(HttpError(500, "a fault of the server, which is in its log"))
        finally:
            self.in_flight -= 1
        failed = answer.status >= 400 and answer.status != CLIENT_LEFT
        if path.startswith(self._log_prefix) and (check.tokens or failed):
            ms = 1000 * (perf_counter() - began)
            who = scope["token_name"] or (scope.get("client") or ["?"])[0]
            what = f"{scope['method']} {printable(path)}"
            self._log(f"{scope['request_id']} {who} {what} {answer.status} {ms:.0f} ms", None)


class _Answer:
    """The answer to one request. status: 0 until it begins. more: further headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, identity: bytes, most: int) -> None:
        self.status = 0
        self.more: list[tuple[bytes, bytes]] = []
        self._receive, self._send, self._identity = receive, send, identity
        names = {name for name, _ in scope["headers"]}
        self._unread = bool({b"content-length", b"transfer-encoding"} & names)
        self._left = self._most = most
        self._due = perf_counter() + BODY_S

    async def receive(self) -> Message:
        """Receive a message. Raises HttpError for a body that is too long or too slow."""
        if not self._unread:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._due - perf_counter()))
        except TimeoutError:
            raise HttpError(408, f"the body did not arrive within {BODY_S:.0f} s") from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HttpError(413, f"the body is longer than {self._most} bytes")
        self._unread = bool(message.get("more_body", False))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            known = {name for name, _ in headers}
            headers += [each for each in _HEADERS if each[0] not in known]
            headers += [(b"x-request-id", self._identity), *self.more]
            if self._unread:  # Reading it could take forever.
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def preflight(self) -> None:
        """Answer a browser that asks whether a page of an accepted origin may send a request."""
        allowed = b"authorization, content-type, x-request-id"
        self.more += [(b"access-control-allow-headers", allowed), (b"access-control-allow-methods", _METHODS)]
        self._unread = False
        await self.send({"type": "http.response.start", "status": 204, "headers": []})
        await self.send({"type": "http.response.body", "body": b""})

    async def error(self, error: HttpError) -> None:
        """Send an error, unless the answer has begun."""
        if self.status:
            return
        body = json.dumps({"error": str(error)}).encode() + b"\n"
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _headers_of(scope: Scope) -> Mapping[str, str]:
    """Return a request's headers by lower-case name; the values of repeated ones are joined."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found

# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP requests of a provider: registration at lichess, jobs from the broker, answers to it."""

from __future__ import annotations

import json
import select
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from protocol.common.printing import ReportedError, reason

LICHESS = "https://lichess.org"
BROKER = "https://engine.lichess.ovh"

POLL_S = 30.0
"""Timeout of a poll, which the broker answers after 10 seconds."""

ANSWER_S = 15.0
"""Timeout of other requests, and of a write."""

MOST_BYTES = 1 << 20
"""Maximum bytes of an answer that are read."""

ERRORS = (OSError, HTTPException, ValueError)
"""What a request may raise. ValueError: the answer is not what the protocol says."""


class RefusedError(ReportedError):
    """Lichess refuses a request permanently. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class BoardJob:
    """A position to search.

    engine, session: whose tree it continues. network: the registered providerData. limit: movetime in ms,
    depth or nodes, and its value.
    """

    identity: str
    engine: str
    session: str
    network: str
    fen: str
    moves: tuple[str, ...]
    multipv: int
    limit: tuple[str, int]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> BoardJob:
        """Return the job of an answer of the broker. Raises ValueError."""
        try:
            work, engine = data["work"], data["engine"]
            limits = [(name, int(work[name])) for name in ("movetime", "depth", "nodes") if work.get(name)]
            return cls(
                identity=str(data["id"]),
                engine=str(engine["id"]),
                session=str(work["sessionId"]),
                network=str(engine.get("providerData") or ""),
                fen=str(work["initialFen"]),
                moves=tuple(map(str, work["moves"])),
                multipv=min(max(int(work.get("multiPv") or 1), 1), 5),
                limit=limits[0],
            )
        except Exception as error:  # Anything may be in an answer.
            raise ValueError(f"the broker sent no job: {type(error).__name__}: {error}") from None


def register(
    url: str, token: str, secret: str, engine: str, network: str, *, threads: int, hash_mb: int
) -> None:
    """Register an engine for the user of a token, or update it. network: its providerData.

    Raises RefusedError and ERRORS.
    """
    body = {
        "name": engine,
        "maxThreads": threads,
        "maxHash": hash_mb,
        "variants": ["chess"],
        "providerSecret": secret,
        "providerData": network,
    }
    own = _ask(url, "GET", "/api/external-engine", token)
    known: Sequence[Any] = own if isinstance(own, list) else []
    same = [each.get("id") for each in known if isinstance(each, dict) and each.get("name") == engine]
    path = f"/api/external-engine/{quote(str(same[0]), safe='')}" if same else "/api/external-engine"
    _ask(url, "PUT" if same else "POST", path, token, body)


def poll(url: str, secret: str) -> BoardJob | None:
    """Wait for a job; None if there was none for some seconds. Raises ERRORS."""
    with _connected(url, POLL_S) as connection:
        body = json.dumps({"providerSecret": secret})
        connection.request("POST", "/api/external-engine/work", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read(MOST_BYTES)
        if response.status == 204:
            return None
        if response.status != 200:
            raise ValueError(f"the broker answered with status {response.status}")
        found = json.loads(data)
    try:
        return BoardJob.of(found)
    except ValueError:
        if isinstance(found, dict) and isinstance(found.get("id"), str):
            refuse(url, found["id"])
        raise


def refuse(url: str, job: str) -> None:
    """Answer a job that cannot be searched, so that its board does not wait. Errors are ignored."""
    with suppress(*ERRORS):
        answer(url, job, iter(["bestmove (none)"]))


def answer(url: str, job: str, lines: Iterator[str]) -> bool:
    """Send an engine's output as it comes; return False if the broker ended the request. Raises ERRORS."""
    with _connected(url, ANSWER_S) as connection:
        connection.putrequest("POST", f"/api/external-engine/work/{quote(job, safe='')}")
        connection.putheader("Content-Type", "text/plain")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        for text in lines:
            if _has_answered(connection):
                return False
            data = text.encode() + b"\n"
            connection.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        connection.send(b"0\r\n\r\n")
        response = connection.getresponse()
        response.read(MOST_BYTES)
        if response.status >= 400:
            raise ValueError(f"the broker answered with status {response.status}")
        return True


def _has_answered(connection: HTTPConnection) -> bool:
    """Return True if the broker has answered or closed the connection, because nobody waits any more."""
    return bool(connection.sock and select.select([connection.sock], [], [], 0)[0])


def _ask(url: str, method: str, path: str, token: str, body: object = None) -> object:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with _connected(url, ANSWER_S) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response: HTTPResponse = connection.getresponse()
        data = response.read(MOST_BYTES)
    if response.status in (401, 403):
        raise RefusedError("lichess refuses the token: it needs the scopes engine:read and engine:write")
    if 400 <= response.status < 500 and response.status != 429:
        raise RefusedError(f"lichess refuses the registration with status {response.status}: {data[:200]!r}")
    if response.status >= 400:
        raise ValueError(f"lichess answered with status {response.status}")
    return json.loads(data) if data else None


@contextmanager
def _connected(url: str, timeout_s: float) -> Iterator[HTTPConnection]:
    """A connection; errors of the operating system name its address."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection: HTTPConnection = HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout_s, context=context
        )
    else:
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        yield connection
    except OSError as error:
        raise OSError(error.errno, f"{url}: {reason(error)}") from None
    finally:
        connection.close()

# SPDX-License-Identifier: GPL-3.0-or-later
"""ZeroMQ's authentication protocol (ZAP, RFC 27), answered in the service's own loop.

Plain addresses use it, too: the answer becomes the property User-Id of all messages of the connection, which
a client could otherwise set itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from evaluator.service.connections.access import Access, Domain
from protocol.connections import multipart

AT_A_TIME = 16
"""Requests answered per round, so that thousands of new connections do not delay other clients."""

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_USER = "User-Id"


class Authentication:
    """Answers ZAP requests. Belongs to the thread of the sockets.

    on_refused: called for each refused client.
    """

    def __init__(self, context: zmq.Context[Any], access: Access, on_refused: Callable[[], None]) -> None:
        self._access = access
        self._on_refused = on_refused
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ENDPOINT)
        self._descriptor = int(self._socket.getsockopt(zmq.FD))

    def secure(self, socket: zmq.Socket[Any], address: str) -> bytes | None:
        """Set up authentication for the next bind of a socket, and return the public key that its clients
        need; None for an address without keys. Raises KeysError.

        Addresses that were bound before keep their settings, so one socket can have addresses of all kinds.
        """
        domain = self._access.domain(address)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.ZAP_DOMAIN, domain.value.encode())
        if domain is not Domain.KEYS:
            socket.setsockopt(zmq.CURVE_SERVER, 0)
            return None
        pair = self._access.pair()
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret)
        return pair.public

    def fileno(self) -> int:
        """Return the descriptor to poll: readable if there may be requests."""
        return self._descriptor

    def is_asked(self) -> bool:
        """Return True if requests are waiting."""
        return multipart.has_message(self._socket)

    def answer(self) -> bool:
        """Answer some of the waiting requests and return True if more are waiting."""
        for _ in range(AT_A_TIME):
            if not self.is_asked():
                return False
            version, question, domain, _address, _identity, mechanism, *credentials = (
                self._socket.recv_multipart(zmq.NOBLOCK)
            )
            key = credentials[0] if mechanism == b"CURVE" and len(credentials) == 1 else None
            user = self._access.admit(domain.decode(), key) if version == _VERSION else None
            if user is None:
                self._on_refused()
            status = (b"400", b"not allowed") if user is None else (b"200", b"OK")
            self._socket.send_multipart([_VERSION, question, *status, (user or "").encode(), b""])
        return True

    def close(self) -> None:
        """Stop admitting clients."""
        self._socket.close()


def user_of(frame: zmq.Frame) -> str:
    """Return the user that sent a message."""
    try:
        return str(frame.get(_USER))
    except zmq.ZMQError:  # no ZAP answer for the connection, which cannot happen
        return ""

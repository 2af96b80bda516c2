# SPDX-License-Identifier: GPL-3.0-or-later
"""ZeroMQ's question who may connect (ZAP, RFC 27), answered in the service's own loop.

Every address asks, plain ones too: the answer becomes the property User-Id of all messages of the connection,
which a client could otherwise choose itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from evaluator.service.connections.access import Access, Door
from protocol.connections import multipart

AT_A_TIME = 16
"""Questions answered in one round of the service, so that thousands who connect at once hold nobody up."""

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_USER = "User-Id"


class Authentication:
    """Belongs to the thread of the sockets.

    on_refused: called for each client that is not let in.
    """

    def __init__(self, context: zmq.Context[Any], access: Access, on_refused: Callable[[], None]) -> None:
        self._access = access
        self._on_refused = on_refused
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ENDPOINT)
        self._descriptor = int(self._socket.getsockopt(zmq.FD))

    def secure(self, socket: zmq.Socket[Any], address: str) -> bytes | None:
        """Have the next bind of a socket let in whom the address is for; returns the public key that its
        clients have to know, None for an address without keys. Raises KeysError.

        What was bound before keeps what it was told, so that one socket has addresses of all kinds.
        """
        door = self._access.door(address)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.ZAP_DOMAIN, door.value.encode())
        if door is not Door.KEYS:
            socket.setsockopt(zmq.CURVE_SERVER, 0)
            return None
        pair = self._access.pair()
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret)
        return pair.public

    def fileno(self) -> int:
        """What to poll: readable when there may be questions."""
        return self._descriptor

    def answer(self) -> bool:
        """Answer some of the questions that are there; returns whether there are more."""
        for _ in range(AT_A_TIME):
            if not multipart.has_message(self._socket):
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
        """Let nobody in any more."""
        self._socket.close()


def user_of(frame: zmq.Frame) -> str:
    """Who sent a message, as it was admitted."""
    try:
        return str(frame.get(_USER))
    except zmq.ZMQError:  # nobody was asked about the connection, which cannot be
        return ""

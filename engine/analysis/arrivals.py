# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections that have not sent their request yet, and the handling of a system without room for more. Only
asyncio's thread may use them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection

from protocol.host.crowd import REFUSAL, Crowd, source_of

MOST_ARRIVALS = 64
"""Maximum number at once. A further one displaces a silent one (protocol.host.crowd)."""

TOLD_EVERY_SECONDS = 10.0

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Arrivals:
    """The connections without a request."""

    def __init__(self) -> None:
        self._waiting: Crowd[ServerConnection] = Crowd(MOST_ARRIVALS)

    def __len__(self) -> int:
        return len(self._waiting)

    def came(self, connection: ServerConnection) -> None:
        """Add a new connection."""
        source = source_of(str(connection.transport.get_extra_info("peername", ("",))[0]))
        displaced = self._waiting.displaced_by(source)
        if displaced is not None:
            self.went(displaced)
            displaced.transport.write(REFUSAL)
            displaced.transport.close()
        self._waiting.add(connection, source)

    def went(self, connection: ServerConnection) -> None:
        """Remove a connection whose request has arrived or that has ended."""
        self._waiting.remove(connection)


def connections_of(arrivals: Arrivals) -> type[ServerConnection]:
    """Return a connection class for websockets that notifies `arrivals`."""

    class Arriving(ServerConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            arrivals.came(self)

        def connection_lost(self, exc: Exception | None) -> None:
            arrivals.went(self)
            super().connection_lost(exc)

    return Arriving


class NoRoom:
    """An exception handler of asyncio's loop. log: receives at intervals that no connection can be accepted,
    an error that asyncio raises a hundred times per second."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + TOLD_EVERY_SECONDS
            self._log(f"no connection can be taken: {error}")

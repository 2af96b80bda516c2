# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's connection to an ipc address without ZeroMQ's I/O thread.

The calling thread reads and writes the socket itself (protocol/core), so no other thread is woken for a
message. The bytes on the socket are the same as with ZeroMQ.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from protocol.connections.handshake import too_many
from protocol.connections.multipart import READABLE
from protocol.errors import EvaluatorLost
from protocol.wire.codec import MAX_REPLY_HEADER, max_message_bytes
from protocol.wire.messages import WIRE_MAX_POSITIONS

if sys.platform == "linux":
    from protocol._core import Stream

AVAILABLE = sys.platform == "linux"
"""True if this system supports such connections."""

_MOST_FRAMES = 64


class UnixConnection:
    """A Connection over a native Stream."""

    def __init__(self, address: str) -> None:
        """Connect. Raises EvaluatorLost for an invalid address."""
        self.address = address
        self._lost: str | None = None
        self._stream: Stream | None = None
        path = os.fsencode(self.address.removeprefix("ipc://"))
        if path.startswith(b"@"):  # an abstract name, not a file
            path = b"\0" + path[1:]
        frame = max(MAX_REPLY_HEADER, max_message_bytes(WIRE_MAX_POSITIONS))
        try:
            self._stream = Stream(path, frame=frame, message=4 * frame, parts=_MOST_FRAMES)
        except BlockingIOError:
            self._lost = (
                f"the evaluator at {self.address} takes no connections: it stands still, or too many came "
                "at once"
            )
        except OSError as error:
            if not isinstance(error, ConnectionError | FileNotFoundError | NotADirectoryError):
                raise EvaluatorLost(
                    f"{self.address!r} is not an address to connect to ({error.strerror}); "
                    "use tcp://HOST:PORT or ipc://PATH"
                ) from None
            self._lost = f"no evaluator listens at {self.address}"

    def send(self, frames: Sequence[Any]) -> None:
        """See `Connection`."""
        if self._lost is not None:
            raise EvaluatorLost(self._lost)
        assert self._stream is not None
        if not self._stream.send(frames):
            raise self.broken(self._why(self._ending()))

    def receive(self, deadline: float | None, interrupt: int | None = None) -> Sequence[Any] | None:
        """See `Connection`."""
        if self._stream is None:
            raise EvaluatorLost(self._lost or "")
        left_ms = -1 if deadline is None else max(0, math.ceil((deadline - time.perf_counter()) * 1000))
        try:
            frames = self._stream.receive(
                left_ms if self._lost is None else 0, -1 if interrupt is None else interrupt
            )
        except ConnectionError as ended:
            if self._lost is None:
                self._lost = self._why(str(ended))
            raise EvaluatorLost(self._lost) from None
        if frames is None and self._lost is not None:
            raise EvaluatorLost(self._lost)
        return frames

    def broken(self, reason: str) -> EvaluatorLost:
        """See `Connection`."""
        self._lost = reason
        return EvaluatorLost(reason)

    @property
    def has_events(self) -> bool:
        """True if the connection is lost, or another message came together with the previous one."""
        return self._stream is None or self._lost is not None or self._stream.has_message

    @property
    def watched(self) -> list[tuple[Any, int]]:
        """The socket."""
        return [] if self._stream is None else [(self._stream.fileno(), READABLE)]

    @property
    def stream(self) -> Stream | None:
        """See `Connection`."""
        return self._stream if self._lost is None else None

    def close(self) -> None:
        """Close the connection without waiting for messages in flight."""
        if self._stream is not None:
            self._stream.close()

    def _ending(self) -> str:
        """Return why sending failed: the reason that the service sent before it closed the connection."""
        assert self._stream is not None
        if not self._stream.was_ready:  # No message is lost.
            try:
                self._stream.receive(0, -1)
            except ConnectionError as ended:
                return str(ended)
        return "peer"

    def _why(self, ending: str) -> str:
        """Return the error text for the end of the connection."""
        assert self._stream is not None
        if ending == "peer" and self._stream.was_ready:
            return f"the evaluator at {self.address} is gone (connection closed)"
        if ending == "peer":
            return f"the evaluator at {self.address} closed the connection before the handshake was over"
        if ending == "refused":
            return too_many(self.address)
        if ending == "foreign":
            return f"what listens at {self.address} is not an evaluator (ZeroMQ handshake failed)"
        return f"{self.address} sent what no evaluator sends ({ending})"

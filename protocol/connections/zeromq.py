# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's connection through ZeroMQ to any address, encrypted or not."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from protocol.common.keys.credentials import credentials_for
from protocol.common.keys.notation import KeysError
from protocol.connections import multipart
from protocol.connections.handshake import TOO_MANY, why_refused
from protocol.connections.multipart import READABLE
from protocol.errors import EvaluatorLost
from protocol.wire.codec import MAX_REPLY_HEADER, max_message_bytes

HEARTBEAT_MS = 250
"""Interval of pings on an idle connection; it is lost after four missed answers.
For machines that vanish: the death of a process is noticed at once by its closed connection."""

RETRY_S = 2.0
"""Seconds that a client retries after a refusal because of too many connections.
Unauthenticated clients may have displaced it during its handshake."""

RETRY_PAUSE_S = 0.01
"""Pause between two retries."""

BRIEF_MS = 20
"""Wait for an answer without checking whether the connection is lost."""

LONG_MS = 3_600_000
"""Longest wait before the connection is checked again."""

_EVENTS = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | zmq.Event.CONNECT_RETRIED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


class ZeroMqConnection:
    """A Connection over a ZeroMQ DEALER socket."""

    def __init__(self, context: zmq.Context[Any], address: str, keys: str | Path = "") -> None:
        """Connect. keys: folder of keys, as in credentials_for. Raises EvaluatorLost for an invalid address
        or unusable keys; `receive` reports whether anybody listens."""
        try:
            address, self._credentials = credentials_for(address, keys)
        except KeysError as error:
            raise EvaluatorLost(str(error)) from None
        self.address = address
        self._context = context
        self._stood = False
        self._lost: str | None = None
        self._patience_ms = -1
        """Current RCVTIMEO of the socket."""
        self._retries_until = time.perf_counter() + RETRY_S
        self._first: list[Sequence[Any]] | None = []
        """Messages sent so far, for a retry; None once the handshake has completed."""
        self._open()

    def _open(self) -> None:
        """Connect. Raises EvaluatorLost."""
        address = self.address
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.IPV6, int("[" in address))
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4 * HEARTBEAT_MS)
        # libzmq 4.3.5 aborts the process if a connection breaks behind a full pipe while a heartbeat is due.
        # Without a limit no pipe is full; answers are bounded by the requests.
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(MAX_REPLY_HEADER, max_message_bytes(65536)))
        if self._credentials is not None:
            self._credentials.secure(self._socket)
        self._monitor = self._socket.get_monitor_socket(int(_EVENTS))
        self.watched: list[tuple[Any, int]] = [(self._socket, READABLE), (self._monitor, READABLE)]
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise EvaluatorLost(
                f"{address!r} is not an address to connect to ({error}); "
                "use tcp://HOST:PORT or, except on Windows, ipc://PATH"
            ) from None

    def send(self, frames: Sequence[Any]) -> None:
        """Send a message without waiting. Raises EvaluatorLost."""
        if self._lost is not None:
            raise EvaluatorLost(self._lost)
        if self._first is not None:
            self._first.append(frames)
        try:
            multipart.send(self._socket, frames)
        except zmq.Again:
            # Also raised if the connection broke before anything was sent.
            refused = self._socket
            while self._lost is None and multipart.has_message(self._monitor):
                self._note_event()
            if self._lost is None and self._socket is not refused:
                return  # the retry has sent it
            reason = self._lost or f"the evaluator at {self.address} does not take messages any more"
            raise EvaluatorLost(reason) from None

    def receive(self, deadline: float | None, interrupt: int | None = None) -> list[zmq.Frame] | None:
        """Return the frames of the next message, or None at the deadline or once `interrupt` is readable.
        deadline: monotonic seconds, None for no limit. Raises EvaluatorLost."""
        brief = interrupt is None and self._lost is None
        while True:
            left_ms = LONG_MS if deadline is None else math.ceil((deadline - time.perf_counter()) * 1000)
            if brief and left_ms > 0:
                # Wait for an answer that is about to come in the same call that receives it.
                brief = False
                frames = self._receive_within(min(left_ms, BRIEF_MS))
                if frames is not None:
                    self._first = None
                    return frames
                continue
            ready = self._wait(max(0, left_ms) if self._lost is None else 0, interrupt)
            if self._socket in ready:
                self._first = None
                return multipart.receive(self._socket)
            # Checked last: answers that arrived before the connection broke are valid.
            if self._lost is not None:
                raise EvaluatorLost(self._lost)
            if self._monitor in ready:
                self._note_event()
            elif left_ms <= 0 or interrupt in ready:
                return None

    def broken(self, reason: str) -> EvaluatorLost:
        """Mark the connection as lost because of invalid input; returns the error to raise."""
        self._lost = reason
        return EvaluatorLost(reason)

    @property
    def has_events(self) -> bool:
        """True if the connection is lost."""
        return self._lost is not None

    @property
    def stream(self) -> None:
        """None: ZeroMQ owns the socket."""

    def close(self) -> None:
        """Close the sockets without waiting for messages in flight."""
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        # Not left to the garbage collector: an open socket would block the context's termination
        # indefinitely.
        self._monitor.close(linger=0)

    def _receive_within(self, milliseconds: int) -> list[zmq.Frame] | None:
        """Return the next message, or None if none came in time. Does not check the monitor."""
        if milliseconds != self._patience_ms:
            self._socket.setsockopt(zmq.RCVTIMEO, milliseconds)
            self._patience_ms = milliseconds
        try:
            return multipart.receive(self._socket, wait=True)
        except zmq.Again:
            return None

    def _wait(self, wait_ms: int, interrupt: int | None) -> dict[Any, int]:
        """Wait for the socket, the monitor or the descriptor, and return those that are ready."""
        watched = self.watched if interrupt is None else [*self.watched, (interrupt, READABLE)]
        return dict(multipart.wait(watched, wait_ms))

    def _retry(self) -> None:
        """Reconnect, and resend the messages. Raises EvaluatorLost."""
        self.close()
        time.sleep(RETRY_PAUSE_S)
        self._patience_ms = -1
        self._open()
        with contextlib.suppress(zmq.Again):  # Refused again; the monitor reports it next.
            for frames in self._first or ():
                multipart.send(self._socket, frames)

    def _note_event(self) -> None:
        """Process a monitor event: the completed handshake, or else a loss of the connection."""
        event: Mapping[str, Any] = parse_monitor_message(self._monitor.recv_multipart())
        if event["event"] == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._stood = True
            self._first = None
        elif event["event"] == zmq.Event.CONNECT_RETRIED:
            self._lost = f"no evaluator listens at {self.address}"
        elif self._stood:
            self._lost = f"the evaluator at {self.address} is gone (connection closed)"
        elif (event["event"], event["value"]) in TOO_MANY and time.perf_counter() < self._retries_until:
            self._retry()
        else:
            self._lost = why_refused(self.address, event["event"], event["value"], self._credentials)

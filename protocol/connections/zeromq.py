# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's connection through ZeroMQ: to any address, encrypted or not."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from protocol.codec import MAX_REPLY_HEADER, max_message_bytes
from protocol.connections import multipart
from protocol.connections.handshake import TOO_MANY, why_refused
from protocol.connections.multipart import READABLE
from protocol.errors import EvaluatorLost
from protocol.keys.credentials import credentials_for
from protocol.keys.notation import KeysError

HEARTBEAT_MS = 250
"""How often the transport pings an idle connection; after four missed answers it counts as lost. This is
for machines that vanish: a process that dies is noticed at once, by its closed connection."""

RETRY_S = 2.0
"""How long a client retries that is refused because the service has too many connections. Strangers may have
displaced it in the middle of its handshake."""

RETRY_PAUSE_S = 0.01
"""Between two such tries."""

BRIEF_MS = 20
"""So long an answer is waited for without looking at whether the connection still stands."""

LONG_MS = 3_600_000
"""The longest wait between two looks."""

_EVENTS = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | zmq.Event.CONNECT_RETRIED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


class ZeroMqConnection:
    """See `protocol.connections.connection.Connection`."""

    def __init__(self, context: zmq.Context[Any], address: str, keys: str | Path = "") -> None:
        """keys: the folder that keys are kept in, as credentials_for has it. Raises EvaluatorLost for what is
        no address, and for keys that cannot be used; whether anybody listens shows when receiving."""
        try:
            address, self._credentials = credentials_for(address, keys)
        except KeysError as error:
            raise EvaluatorLost(str(error)) from None
        self.address = address
        self._context = context
        self._stood = False
        self._lost: str | None = None
        self._patience_ms = -1
        """RCVTIMEO as it is set."""
        self._retries_until = time.monotonic() + RETRY_S
        self._first: list[Sequence[Any]] | None = []
        """The messages that were sent so far, for another try; None once the handshake is over."""
        self._open()

    def _open(self) -> None:
        """Connect. Raises EvaluatorLost."""
        address = self.address
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.IPV6, int("[" in address))
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4 * HEARTBEAT_MS)
        # libzmq 4.3.5 ends the process when a connection breaks behind a full pipe while a heartbeat is due;
        # what comes is no more than what was asked for.
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(MAX_REPLY_HEADER, max_message_bytes(65536)))
        if self._credentials is not None:
            self._credentials.secure(self._socket)
        self._monitor = self._socket.get_monitor_socket(int(_EVENTS))
        self._watched = [(self._socket, READABLE), (self._monitor, READABLE)]
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
            # So it is, too, when the connection broke before anything was sent.
            refused = self._socket
            while self._lost is None and multipart.has_message(self._monitor):
                self._note_event()
            if self._lost is None and self._socket is not refused:
                return  # with the next try
            reason = self._lost or f"the evaluator at {self.address} does not take messages any more"
            raise EvaluatorLost(reason) from None

    def receive(self, deadline: float | None, interrupt: int | None = None) -> list[zmq.Frame] | None:
        """The frames of the next message; None if none came by the deadline (monotonic seconds, None: never),
        or before the file descriptor `interrupt` became readable. Raises EvaluatorLost."""
        brief = interrupt is None and self._lost is None
        while True:
            left_ms = LONG_MS if deadline is None else math.ceil((deadline - time.monotonic()) * 1000)
            if brief and left_ms > 0:
                # An answer that is about to come is waited for in the one call that takes it.
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
            # Only now: answers that arrived before the connection broke are still good.
            if self._lost is not None:
                raise EvaluatorLost(self._lost)
            if self._monitor in ready:
                self._note_event()
            elif left_ms <= 0 or interrupt in ready:
                return None

    def broken(self, reason: str) -> EvaluatorLost:
        """Count the connection as lost, because of what came through it; returns the error to raise."""
        self._lost = reason
        return EvaluatorLost(reason)

    @property
    def has_news(self) -> bool:
        """Whether it is lost."""
        return self._lost is not None

    @property
    def watched(self) -> list[tuple[Any, int]]:
        """The sockets that tell of messages, and of a loss."""
        return self._watched

    @property
    def stream(self) -> None:
        """None: ZeroMQ has the socket."""

    def close(self) -> None:
        """Free the sockets without waiting for what is on its way."""
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        # Not left to the collector: an open socket would keep the context's end waiting for ever.
        self._monitor.close(linger=0)

    def _receive_within(self, milliseconds: int) -> list[zmq.Frame] | None:
        """The frames of the next message, None if none came in that time. The monitor is not looked at."""
        if milliseconds != self._patience_ms:
            self._socket.setsockopt(zmq.RCVTIMEO, milliseconds)
            self._patience_ms = milliseconds
        try:
            return multipart.receive(self._socket, wait=True)
        except zmq.Again:
            return None

    def _wait(self, wait_ms: int, interrupt: int | None) -> dict[Any, int]:
        """Wait for the socket, the monitor or the descriptor; returns which of them are ready."""
        watched = self._watched if interrupt is None else [*self._watched, (interrupt, READABLE)]
        return dict(multipart.wait(watched, wait_ms))

    def _retry(self) -> None:
        """Connect again, and send what was sent. Raises EvaluatorLost."""
        self.close()
        time.sleep(RETRY_PAUSE_S)
        self._patience_ms = -1
        self._open()
        with contextlib.suppress(zmq.Again):  # It has been refused already, as the monitor reports next.
            for frames in self._first or ():
                multipart.send(self._socket, frames)

    def _note_event(self) -> None:
        """Take an event of the monitor in, which tells of the connection's loss unless it is the first."""
        event: Mapping[str, Any] = parse_monitor_message(self._monitor.recv_multipart())
        if event["event"] == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._stood = True
            self._first = None
        elif event["event"] == zmq.Event.CONNECT_RETRIED:
            self._lost = f"no evaluator listens at {self.address}"
        elif self._stood:
            self._lost = f"the evaluator at {self.address} is gone (connection closed)"
        elif (event["event"], event["value"]) in TOO_MANY and time.monotonic() < self._retries_until:
            self._retry()
        else:
            self._lost = why_refused(self.address, event["event"], event["value"], self._credentials)

"""A client's connection to one address: frames out and in, and the reason when it is lost."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from protocol.codec import MAX_REPLY_HEADER, max_message_bytes
from protocol.errors import EvaluatorLost

HEARTBEAT_MS = 250
"""How often the transport pings an idle connection; after four missed answers it counts as lost. This is
for machines that vanish: a process that dies is noticed at once, by its closed connection."""

_LOSS_EVENTS = (
    zmq.Event.DISCONNECTED
    | zmq.Event.CONNECT_RETRIED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


class Connection:
    """Belongs to one thread. Once lost it stays lost: what had arrived before can still be received."""

    def __init__(self, context: zmq.Context[Any], address: str) -> None:
        """Raises EvaluatorLost for what is no address; whether anybody listens shows when receiving."""
        self.address = address
        self._lost: str | None = None
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4 * HEARTBEAT_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(MAX_REPLY_HEADER, max_message_bytes(65536)))
        self._monitor = self._socket.get_monitor_socket(int(_LOSS_EVENTS))
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
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
        try:
            # Frames under 64 KiB are copied all the same (pyzmq's copy_threshold): cheaper than tracking.
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            raise EvaluatorLost(f"the evaluator at {self.address} does not take messages any more") from None

    def receive(self, deadline: float | None, interrupt: int | None = None) -> list[memoryview] | None:
        """The frames of the next message; None if none came by the deadline (monotonic seconds, None: never),
        or before the file descriptor `interrupt` became readable. Raises EvaluatorLost."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                # Only now: answers that arrived before the connection broke are still good.
                if self._lost is not None:
                    raise EvaluatorLost(self._lost) from None
                wait_ms = -1 if deadline is None else math.ceil((deadline - time.monotonic()) * 1000)
                if deadline is not None and wait_ms <= 0:
                    return None
                ready = self._wait(wait_ms, interrupt)
                if self._monitor in ready and self._socket not in ready:
                    self._note_loss()
                elif interrupt in ready and self._socket not in ready:
                    return None
                continue
            return [frame.buffer for frame in frames]

    def broken(self, reason: str) -> EvaluatorLost:
        """Count the connection as lost, because of what came through it; returns the error to raise."""
        self._lost = reason
        return EvaluatorLost(reason)

    def close(self) -> None:
        """Free the sockets without waiting for what is on its way."""
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        # Not left to the collector: an open socket would keep the context's end waiting for ever.
        self._monitor.close(linger=0)

    def _wait(self, wait_ms: int, interrupt: int | None) -> dict[Any, int]:
        """Wait for the socket, the monitor or the descriptor; returns which of them are ready."""
        if interrupt is None:
            return dict(self._poller.poll(wait_ms))
        self._poller.register(interrupt, zmq.POLLIN)
        try:
            return dict(self._poller.poll(wait_ms))
        finally:
            self._poller.unregister(interrupt)

    def _note_loss(self) -> None:
        event: Mapping[str, Any] = parse_monitor_message(self._monitor.recv_multipart())
        if event["event"] == zmq.Event.CONNECT_RETRIED:
            self._lost = f"no evaluator listens at {self.address}"
        elif event["event"] == zmq.Event.DISCONNECTED:
            self._lost = f"the evaluator at {self.address} is gone (connection closed)"
        else:
            self._lost = f"what listens at {self.address} is not an evaluator (ZeroMQ handshake failed)"

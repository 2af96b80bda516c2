# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends results, other replies and errors to clients.

Worker threads pass finished requests to `post`, which encodes the answers. It sends them itself while the I/O
thread sleeps, and otherwise puts them into an outbox that the I/O thread empties.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from evaluator.devices.metrics import Metrics
from evaluator.devices.runners import now_ms
from evaluator.scheduling.requests import Request
from evaluator.service.connections.transport import Client, Delivery, Sockets
from evaluator.service.sessions import Sessions
from evaluator.service.tracing import Tracing
from protocol.errors import DeadlineExceeded, DeviceFailed, RemoteError
from protocol.wire import messages
from protocol.wire.codec import Frame, encode, encode_result

log = logging.getLogger("evaluator.service")


class Replies:
    """Sends to the clients of a service. Belongs to the I/O thread, except `post`.

    instance: random name of this run, part of each result. tracing: gets each answered request.
    """

    def __init__(
        self,
        instance: str,
        metrics: Metrics,
        sessions: Sessions,
        sockets: Sockets,
        tracing: Tracing | None = None,
    ) -> None:
        self._instance = instance
        self._metrics = metrics
        self._sessions = sessions
        self._sockets = sockets
        self._tracing = tracing
        self.outbox: deque[tuple[Client, int, list[Frame] | RemoteError]] = deque()
        """Answers that wait for `send_waiting`."""
        self.wake_always = False
        """True if each `post` must wake the I/O thread: a draining service may have sent its last answer."""

    def send(self, client: Client, message: messages.Reply) -> None:
        """Send a reply."""
        self._send_frames(client, encode(message))

    def send_error(self, client: Client, identity: int, error: RemoteError) -> None:
        """Send an error and count it for the client. identity: id of the request it answers; 0 for none."""
        session = self._sessions.of(client)
        if session is not None:
            session.errors += 1
            about = {"client": session.who, "request": identity}
            log.debug("request %d of %s: %s: %s", identity, session.who, error.code, error, extra=about)
        self.announce(client, error, identity)

    def announce(self, client: Client, error: RemoteError, identity: int = 0) -> None:
        """Send an error that the client did not cause, such as the end of the service."""
        self._metrics.error(error.code)
        self.send(client, messages.Error(identity, error.code, error.message))

    def send_expired(self, requests: Sequence[Request]) -> None:
        """Send errors for requests that were removed from the queues because their deadlines had passed."""
        for request in requests:
            assert isinstance(request.client, int | bytes)
            self._answer(
                request.client, request.id, DeadlineExceeded("still queued when its deadline passed")
            )

    def send_waiting(self) -> None:
        """Send the answers in the outbox."""
        while self.outbox:
            self._answer(*self.outbox.popleft())

    def post(self, finished: Sequence[tuple[Request, RemoteError | None]]) -> None:
        """Accept finished requests from a worker thread: encode the answers, and send them if the I/O thread
        sleeps. Otherwise the I/O thread sends them. Does not raise: the client gets an answer in any case."""
        if not finished:
            return
        answers = []
        for request, error in finished:
            answers.append((request.client, request.id, error or self._encoded(request)))
        if not self._sockets.borrow():
            self.outbox += answers  # type: ignore[arg-type]  # clients of sockets
            self._sockets.wakeup.wake()
            return
        try:
            for answer in answers:
                self._answer(*answer)  # type: ignore[arg-type]
        finally:
            self._sockets.give_back()
        if self.wake_always:
            self._sockets.wakeup.wake()

    def _answer(self, client: Client, identity: int, answer: list[Frame] | RemoteError) -> None:
        """Send the result or error of a request, unless its client is gone."""
        error = answer if isinstance(answer, RemoteError) else None
        entry = self._sessions.finish(client, identity, answered=error is None)
        if entry is None:
            return
        request, network = entry
        if self._tracing is not None:
            session = self._sessions.of(client)
            self._tracing.ended(request, session.who if session else "", network.info.name, error)
        if isinstance(answer, RemoteError):
            self.send_error(client, identity, answer)
            return
        queue_s = (request.launched_ms - request.arrived_ms) / 1000
        whole_s = (now_ms() - request.arrived_ms) / 1000
        self._metrics.answered(network.info.name, request.rank, request.count, queue_s, whole_s)
        self._send_frames(client, answer)

    def _encoded(self, request: Request) -> list[Frame] | RemoteError:
        """Return the encoded result of a request, or an error if encoding fails."""
        assert request.parts is not None
        queue_ms, compute_ms = request.launched_ms - request.arrived_ms, request.compute_ms
        try:
            return encode_result(
                request.id,
                request.parts,
                queue_ms,
                compute_ms,
                request.largest_batch,
                self._instance,
                request.network,
            )
        except Exception as fault:  # probably out of memory; an error needs almost none
            log.exception("an answer could not be encoded")
            return DeviceFailed(f"the evaluator could not put the answer together: {fault!r}")

    def _send_frames(self, client: Client, frames: Sequence[Any]) -> Delivery:
        delivery = self._sockets.send(client, frames)
        if delivery is not Delivery.SENT:
            self._metrics.dropped_replies.add()
        if delivery is Delivery.GONE:
            self._sessions.forget(client)
        return delivery

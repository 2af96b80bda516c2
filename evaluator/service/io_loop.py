# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of the I/O thread: messages in, answers out, and devices told of what is queued."""

from __future__ import annotations

import logging
import time

from evaluator.devices.runners import now_ms
from evaluator.service.connections.transport import Arrived
from evaluator.service.connections.unix_sockets import UnixSockets
from evaluator.service.fast_path import FastPath
from evaluator.service.handlers import Handlers
from evaluator.service.loop_threads import LoopThreads
from evaluator.service.record import Service
from protocol.codec import peek_id
from protocol.errors import BadRequest, RemoteError

log = logging.getLogger("evaluator.service")

MESSAGES_PER_ROUND = 64
"""Messages taken in before answers are sent, so that a flood of requests does not hold answers up."""

FAULT_PAUSE_S = 0.1
"""Pause after a fault of the service's own loop: it must not spin."""

ROUND_MS = 1.0
"""No further message is taken in after this long in a round: a status takes the time of twenty pings, and the
devices hear of new requests after the round. ZeroMQ takes one message of each client in turn."""


class IoLoop:
    """Goes round until the service's life is over."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._threads = LoopThreads(self._step)
        self._fast_path: FastPath | None = None
        if isinstance(service.sockets, UnixSockets):
            self._fast_path = FastPath(service, service.sockets, self._take, self._threads.replace)
        self.handlers = Handlers(service, self._fast_path)

    def run(self) -> None:
        """Go round until the end."""
        self._threads.run()

    def _step(self) -> bool:
        """Wait for something to do and do it; False when the service is to end."""
        if self._service.life.ending:
            return False
        try:
            self._round()
        except Exception:  # memory, most likely: the next round may find some
            log.exception("a round of the service was not finished")
            time.sleep(FAULT_PAUSE_S)
        return not self._service.life.ending

    def _round(self) -> None:
        service = self._service
        deadline = service.dispatcher.next_deadline_ms()
        service.sockets.wait(self._poll_timeout(deadline))
        service.manager.alive()
        while service.tasks:
            service.tasks.popleft()()
        service.replies.send_waiting()
        service.sessions.forget_disconnected()
        service.sockets.log_closed()
        service.sockets.authenticate()
        if self._fast_path is not None and not self._fast_path.run():
            return
        self._receive()
        if deadline is not None and deadline <= now_ms():
            service.replies.send_expired(service.dispatcher.expire())
        if service.life.draining:
            service.life.finish()
        service.dispatcher.announce()

    def _poll_timeout(self, deadline: float | None) -> int:
        """Milliseconds. deadline: of the first request in a queue, in milliseconds of `now_ms`."""
        service, end_by = self._service, self._service.life.end_by_ms
        if service.replies.waiting or service.tasks:
            return 0
        if end_by is not None:
            deadline = min(deadline or end_by, end_by)
        longest = min(1000.0, service.manager.every_ms)
        if deadline is None:
            return int(longest)
        return int(max(0, min(longest, deadline - now_ms() + 1)))

    def _receive(self) -> None:
        end = now_ms() + ROUND_MS
        for number in range(MESSAGES_PER_ROUND):
            if number and now_ms() >= end:
                break
            arrived = self._service.sockets.receive()
            if arrived is None:
                return
            self._take(arrived)
        # More may be waiting: look again without polling.
        self._service.sockets.wakeup.wake()

    def _take(self, arrived: Arrived) -> None:
        """Do what a message asks for, or answer why not."""
        try:
            self.handlers.handle(arrived)
            return
        except RemoteError as refused:
            # Its traceback holds this frame, which holds it: the message would stay until collected.
            error = refused.with_traceback(None)
            if isinstance(refused, BadRequest):
                self._service.metrics.bad_messages.add()
        except Exception:  # a fault of ours with one message must not end the service for everybody
            log.exception("a message could not be handled")
            error = BadRequest("the evaluator could not handle this message; its log says more")
        self._service.replies.send_error(arrived.client, peek_id(arrived.frames), error)

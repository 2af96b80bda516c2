# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of the I/O thread: receives messages, sends answers, and notifies devices of queued requests."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from evaluator.devices.runners import now_ms
from evaluator.service.connections.hub_sockets import HubSockets
from evaluator.service.connections.transport import Arrived
from evaluator.service.fast_path import IN_A_ROW, FastPath
from evaluator.service.handlers import Handlers
from evaluator.service.record import ServiceParts
from protocol.errors import BadRequest, RemoteError
from protocol.wire.codec import peek_id

log = logging.getLogger("evaluator.service")


class LoopThreads:
    """Runs the loop in a thread, which another one replaces if a driver call does not return.

    The fast path (fast_path.py) enters the driver on the thread of the loop, and a driver that hangs keeps
    that thread. `run`: for the owner. `replace`: for any thread while the loop's thread is in a step.
    """

    def __init__(self, step: Callable[[], bool]) -> None:
        """step: one round of the loop; returns False to end it."""
        self._step = step
        self._current: threading.Thread | None = None
        self._ended = threading.Event()
        self._fault: BaseException | None = None

    def run(self) -> None:
        """Call `step` repeatedly until it returns False. Raises what `step` raises.

        The caller waits, so that it can handle signals whatever the thread does. Replaced threads are not
        waited for.
        """
        self.replace()
        while not self._ended.wait(1.0):  # With a time: without one, Windows handles no signals.
            pass
        if self._fault is not None:
            raise self._fault

    def replace(self) -> None:
        """Let a new thread run the loop. The one before ends when its step returns."""
        self._current = threading.Thread(target=self._loop, name="service", daemon=True)
        self._current.start()

    def _loop(self) -> None:
        own = threading.current_thread()
        going, fault = True, None
        while going and self._current is own:
            try:
                going = self._step()
            except BaseException as raised:
                going, fault = False, raised
        if self._current is own:
            self._fault = fault
            self._ended.set()
        elif fault is not None:
            log.error("a step failed after its thread had been replaced", exc_info=fault)


MESSAGES_PER_ROUND = 64
"""Messages received before answers are sent, so that a flood of requests does not delay answers."""

FAULT_PAUSE_S = 0.1
"""Pause after an exception in the loop, so that it does not spin."""

ROUND_MS = 1.0
"""Time after which a round receives no further message. A status takes as long as twenty pings, and devices
are notified after the round. ZeroMQ takes messages from its clients in turn."""


class IoLoop:
    """Runs rounds until the service ends."""

    def __init__(self, service: ServiceParts, *, private: bool) -> None:
        """private: only one program connects, so that the fast path may serve it."""
        self._service = service
        self._threads = LoopThreads(self._step)
        self._fast_path: FastPath | None = None
        if private and isinstance(service.sockets, HubSockets):
            self._fast_path = FastPath(service, service.sockets, self._take, self._threads.replace)
        self.handlers = Handlers(service, self._fast_path)

    def run(self) -> None:
        """Run until the service ends."""
        self._threads.run()

    def _step(self) -> bool:
        """Run one round. Returns False if the service should end."""
        if self._service.life.ending:
            return False
        try:
            self._round()
        except Exception:  # probably out of memory; the next round may find some
            log.exception("a round of the service was not finished")
            time.sleep(FAULT_PAUSE_S)
        return not self._service.life.ending

    def _round(self) -> None:
        service = self._service
        arrived = service.sockets.wait(self._poll_timeout())
        now = now_ms()
        if now >= service.manager.next_alive_ms:
            service.manager.alive(now)
        while service.tasks:
            service.tasks.popleft()()
        if service.replies.outbox:
            service.replies.send_waiting()
        if arrived:
            service.sessions.forget_disconnected()
            service.sockets.attend()
        if self._fast_path is not None and self._fast_path.in_a_row >= IN_A_ROW and not self._fast_path.run():
            return
        if service.sockets.has_message:
            now = self._receive(now_ms() if arrived else now)
        if service.dispatcher.deadline_ms <= now:
            service.replies.send_expired(service.dispatcher.expire(now))
        if service.life.draining:
            service.life.finish()
        service.dispatcher.announce(now=now)

    def _poll_timeout(self) -> int:
        """Return the poll timeout in milliseconds."""
        service = self._service
        if service.replies.outbox or service.tasks:
            return 0
        wakes_ms = min(service.dispatcher.deadline_ms, service.life.end_by_ms, service.manager.next_alive_ms)
        return 1000 if wakes_ms == math.inf else int(max(0, min(1000.0, wakes_ms - now_ms() + 1)))

    def _receive(self, now: float) -> float:
        """Receive the messages of a round. Returns the time after it. now: in milliseconds of now_ms."""
        sockets, end = self._service.sockets, now + ROUND_MS
        for _ in range(MESSAGES_PER_ROUND):
            arrived = sockets.receive()
            if arrived is None:
                return now
            self._take(arrived, now)
            now = now_ms()
            if not sockets.has_message:
                return now
            if now >= end:
                break
        # More messages may be waiting, so the next round must not block.
        sockets.wakeup.wake()
        return now

    def _take(self, arrived: Arrived, now: float) -> None:
        """Handle a message, or answer with an error."""
        try:
            self.handlers.handle(arrived, now)
            return
        except RemoteError as refused:
            # Drop the traceback: its cycle with this frame would keep the message until it is collected.
            error = refused.with_traceback(None)
            if isinstance(refused, BadRequest):
                self._service.metrics.bad_messages.add()
        except Exception:  # a bug that one message triggers must not end the service for everybody
            log.exception("a message could not be handled")
            error = BadRequest("the evaluator could not handle this message; its log says more")
        self._service.replies.send_error(arrived.client, peek_id(arrived.frames), error)

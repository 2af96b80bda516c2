"""The loop of the I/O thread: messages in, answers out, and devices told of what is queued."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.runners import now_ms
from evaluator.metrics import Metrics
from evaluator.service.connections.transport import Arrived, Sockets
from evaluator.service.draining import Drain
from evaluator.service.fast_path import FastPath
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.loop_threads import LoopThreads
from evaluator.service.membership import Membership
from evaluator.service.replies import Replies
from evaluator.service.systemd import ServiceManager
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
    """Goes round until the service's life is over.

    handle: does what a message asks for; raises RemoteError. manager: hears that the loop goes round. fast:
    None if there is no such path.
    """

    def __init__(
        self,
        life: LifeCycle,
        sockets: Sockets,
        membership: Membership,
        dispatcher: Dispatcher,
        replies: Replies,
        drain: Drain,
        metrics: Metrics,
        manager: ServiceManager,
        handle: Callable[[Arrived], None],
        fast: FastPath | None = None,
    ) -> None:
        self._life = life
        self._sockets = sockets
        self._membership = membership
        self._dispatcher = dispatcher
        self._replies = replies
        self._drain = drain
        self._metrics = metrics
        self._manager = manager
        self._handle = handle
        self._threads = LoopThreads(self._step)
        # Filled by other threads, emptied by the I/O thread: things to do there.
        self._tasks: deque[Callable[[], None]] = deque()
        self._fast = fast
        if fast is not None:
            fast.attach(self._take, self.call, self._threads.replace)

    def run(self) -> None:
        """Go round until the end."""
        self._threads.run()

    def call(self, task: Callable[[], None]) -> None:
        """Have something done by the I/O thread. Any thread may ask for it."""
        self._tasks.append(task)
        self._sockets.wakeup.wake()

    def call_from_signal_handler(self, task: Callable[[], None]) -> None:
        """The same, also from a signal handler."""
        self._tasks.append(task)
        self._sockets.wakeup.wake_from_signal_handler()

    def _step(self) -> bool:
        """Wait for something to do and do it; False when the service is to end."""
        if self._life.ending:
            return False
        try:
            self._round()
        except Exception:  # memory, most likely: the next round may find some
            log.exception("a round of the service was not finished")
            time.sleep(FAULT_PAUSE_S)
        return not self._life.ending

    def _round(self) -> None:
        deadline = self._dispatcher.next_deadline_ms()
        timeout = self._poll_timeout(deadline)
        self._sockets.wait(timeout)
        self._manager.alive()
        while self._tasks:
            self._tasks.popleft()()
        self._replies.send_waiting()
        self._membership.forget_the_gone()
        self._sockets.log_closed()
        self._sockets.authenticate()
        if self._fast is not None and not self._fast.run():
            return
        self._receive()
        if deadline is not None and deadline <= now_ms():
            self._replies.send_expired(self._dispatcher.expire())
        if self._life.draining:
            self._drain.finish()
        self._dispatcher.announce()

    def _poll_timeout(self, deadline: float | None) -> int:
        """Milliseconds. deadline: of the first request in a queue, in milliseconds of `now_ms`."""
        if self._replies.waiting or self._tasks:
            return 0
        if self._drain.by_ms is not None:
            deadline = min(deadline or self._drain.by_ms, self._drain.by_ms)
        longest = min(1000.0, self._manager.every_ms)
        if deadline is None:
            return int(longest)
        return int(max(0, min(longest, deadline - now_ms() + 1)))

    def _receive(self) -> None:
        end = now_ms() + ROUND_MS
        for number in range(MESSAGES_PER_ROUND):
            if number and now_ms() >= end:
                break
            arrived = self._sockets.receive()
            if arrived is None:
                return
            self._take(arrived)
        # More may be waiting: look again without polling.
        self._sockets.wakeup.wake()

    def _take(self, arrived: Arrived) -> None:
        """Do what a message asks for, or answer why not."""
        try:
            self._handle(arrived)
            return
        except RemoteError as refused:
            # Its traceback holds this frame, which holds it: the message would stay until collected.
            error = refused.with_traceback(None)
            if isinstance(refused, BadRequest):
                self._metrics.bad_messages.add()
        except Exception:  # a fault of ours with one message must not end the service for everybody
            log.exception("a message could not be handled")
            error = BadRequest("the evaluator could not handle this message; its log says more")
        self._replies.send_error(arrived.client, peek_id(arrived.frames), error)

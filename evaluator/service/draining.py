"""Draining: the service takes nothing new, finishes what is there, and ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from evaluator.devices.runners import now_ms
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.replies import Replies
from evaluator.service.sessions import Sessions
from evaluator.service.systemd import ServiceManager
from protocol import messages
from protocol.errors import Draining

log = logging.getLogger("evaluator.service")

SHUTTING_DOWN = "this evaluator is shutting down"
ELSEWHERE = f"{SHUTTING_DOWN}; connect to another one"


class Drain:
    """Belongs to the I/O thread.

    manager: is notified. stop_at_once: ends the service without waiting for the batches in flight.
    """

    def __init__(
        self,
        life: LifeCycle,
        sessions: Sessions,
        replies: Replies,
        manager: ServiceManager,
        stop_at_once: Callable[[], None],
    ) -> None:
        self._life = life
        self._sessions = sessions
        self._replies = replies
        self._manager = manager
        self._stop_at_once = stop_at_once
        self._waiting: list[tuple[bytes, int]] = []
        self.by_ms: float | None = None
        """When the service ends whatever is left, in milliseconds of `now_ms`; None: when all is done."""

    def begin(self, reason: str, timeout_s: float | None = None) -> None:
        """Take nothing new from now on, and tell the clients. timeout_s: end after so many seconds whatever
        is left."""
        if self._life.drain(reason):
            log.info("draining: %s", reason)
            self._manager.stopping()
        if timeout_s is not None:
            self.by_ms = now_ms() + 1000 * timeout_s
        for session, hello in self._sessions.take_hellos():
            self._replies.send_error(session.client, hello, Draining(SHUTTING_DOWN))
        for client in self._sessions.greeted():
            self._replies.announce(client, Draining(ELSEWHERE))

    def begin_for(self, client: bytes, identity: int) -> None:
        """The same at a client's request, which is answered once all is done."""
        self._waiting.append((client, identity))
        self.begin("a client asked for it")

    def finish(self) -> None:
        """End a service that drains if nothing is left to do, or the time for that is over."""
        if self._life.ending:
            return
        if self._sessions.busy or self._replies.waiting:
            if self.by_ms is not None and now_ms() >= self.by_ms:
                log.warning("the time to finish is over: what is left is answered with an error")
                self._stop_at_once()
            return
        for client, identity in self._waiting:
            self._replies.send(client, messages.Drained(identity))
        self._life.end()

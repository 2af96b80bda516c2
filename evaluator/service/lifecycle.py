# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of a service (loading, ready, degraded, draining), their start times and reasons.

A service that drains accepts nothing new, finishes its requests, and ends.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaluator.devices.runners import now_ms
from evaluator.devices.running.dispatcher import Dispatcher
from evaluator.devices.running.failover import Trouble
from evaluator.service.connections.transport import Client
from evaluator.service.replies import Replies
from evaluator.service.sessions import Sessions
from evaluator.service.systemd import SystemdNotices
from protocol.errors import Draining
from protocol.wire import messages

log = logging.getLogger("evaluator.service")

Name: TypeAlias = Literal["loading", "ready", "degraded", "draining"]

STATES: tuple[Name, ...] = ("loading", "ready", "degraded", "draining")

SHUTTING_DOWN = "this evaluator is shutting down"
ELSEWHERE = f"{SHUTTING_DOWN}; connect to another one"


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a service at one moment.

    since: start of the state in seconds of the Unix epoch. reason: why the service is not ready; empty if it
    is. ready: True if evaluations are accepted and can run. A degraded service is ready while every network
    can still run on some device.
    """

    state: Name
    since: float
    reason: str
    ready: bool


class LifeCycle:
    """Tracks the state and drains the service. manager: notified of changes. Belongs to the I/O thread,
    except `condition` and `ending`, which any thread and signal handler may use."""

    def __init__(
        self, sessions: Sessions, replies: Replies, dispatcher: Dispatcher, manager: SystemdNotices
    ) -> None:
        self._sessions = sessions
        self._replies = replies
        self._dispatcher = dispatcher
        self._manager = manager
        self._began = time.time()
        self._loaded_at = 0.0
        self._drained = 0.0, ""
        self._drain_requests: list[tuple[Client, int]] = []
        self.loaded = False
        """True once the initial networks are loaded."""
        self.draining = False
        """True if the service accepts nothing new."""
        self.ending = False
        """True if the service is about to end. Set it to end the service as soon as possible."""
        self.end_by_ms = math.inf
        """Latest end of a draining service, in milliseconds of `now_ms`."""

    def load(self) -> None:
        """Note that the initial networks are loaded."""
        self._loaded_at, self.loaded = time.time(), True

    def drain(self, reason: str, timeout_s: float | None = None) -> None:
        """Accept nothing new from now on, and notify the clients. timeout_s: time limit for finishing."""
        if not self.draining:
            self._drained = time.time(), reason
            self.draining = self._replies.wake_always = True
            log.info("draining: %s", reason)
            self._manager.stopping()
        if timeout_s is not None:
            self.end_by_ms = now_ms() + 1000 * timeout_s
        for session, hello in self._sessions.take_hellos():
            self._replies.send_error(session.client, hello, Draining(SHUTTING_DOWN))
        for session in self._sessions:
            if session.greeted:
                self._replies.announce(session.client, Draining(ELSEWHERE))

    def drain_for(self, client: Client, identity: int) -> None:
        """Drain at a client's request. The client gets its reply once everything is finished."""
        self._drain_requests.append((client, identity))
        self.drain("a client asked for it")

    def finish(self) -> None:
        """End a draining service if it has no work left or its time limit has passed."""
        if self.ending:
            return
        if self._sessions.busy or self._replies.outbox:
            if now_ms() >= self.end_by_ms:
                log.warning("the time to finish is over: the remaining requests get an error")
                self._dispatcher.hurry()
                self.ending = True
            return
        for client, identity in self._drain_requests:
            self._replies.send(client, messages.Drained(identity))
        self.ending = True

    def condition(
        self, troubles: Sequence[Trouble], usable: bool, well_since: float, loading: str = ""
    ) -> Condition:
        """Return the current state. troubles: excluded devices. usable: every network can run nevertheless.
        well_since: time since which no device has been excluded. loading: what is being loaded."""
        if self.draining:
            return Condition("draining", *self._drained, ready=False)
        if not self.loaded:
            what = f": {loading}" if loading else ""
            return Condition("loading", self._began, f"the networks are being loaded{what}", ready=False)
        if troubles:
            since = min(trouble.since for trouble in troubles)
            return Condition("degraded", since, "; ".join(trouble.reason for trouble in troubles), usable)
        return Condition("ready", max(self._loaded_at, well_since), "", ready=True)

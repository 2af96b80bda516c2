# SPDX-License-Identifier: GPL-3.0-or-later
"""Is an evaluator well? Periodic checks of several, and keepalives to one that owes answers.

A computing evaluator answers a keepalive within milliseconds, however long its batches take. A stopped or
hung process does not answer, and a local socket gives no other sign of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import StatusReply

UNKNOWN, UNREACHABLE = "", "unreachable"
"""States besides those that evaluators report: not checked yet, and no answer."""

READY, DEGRADED = "ready", "degraded"

LOOK_SECONDS = 0.4
"""Interval of health checks: the engine leaves a degraded evaluator within a second. A check costs the
evaluator about 0.6 ms of CPU time."""

ANSWER_SECONDS = 5.0
"""Timeout of a health check. A lost machine is detected earlier."""

QUIET_SECONDS = 2.0
"""Silence after which a keepalive is sent."""

PATIENCE_SECONDS = 10.0
"""Time without an answer to the keepalive after which the evaluator is given up. Swapping takes seconds."""

OnLook = Callable[[str, str, str, frozenset[str]], None]
"""Called with the address, the state, its reason, and the identities of the served networks."""


class HealthCheck:
    """Check each address with its own thread and connection, so that a silent one does not delay others."""

    def __init__(self, addresses: Sequence[str], on_check: OnLook, *, keys: str = "") -> None:
        """on_check: called from the threads after each check. keys: folder of the keys."""
        self._keys = keys
        self._on_check = on_check
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(address,), name="evaluator-watch", daemon=True)
            for address in addresses
        ]

    def start(self) -> None:
        """Start the checks. Idempotent."""
        for thread in self._threads:
            if thread.ident is None and not self._ended.is_set():
                thread.start()

    def close(self) -> None:
        """Stop the checks, without waiting for a running one."""
        self._ended.set()

    def _watch(self, address: str) -> None:
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorFailure

        client: EvaluatorClient | None = None
        while not self._ended.is_set():
            try:
                if client is None:
                    name = f"engine {os.getpid()}, watching"
                    client = EvaluatorClient(
                        address, timeout=ANSWER_SECONDS, name=name, keys=self._keys, handshake=False
                    )
                status = client.status()
            except EvaluatorFailure as error:
                if client is not None:
                    client.close()
                    client = None
                self._tell(address, UNREACHABLE, str(error), frozenset())
            else:
                identities = frozenset(network.identity for network in status.networks)
                self._tell(address, state_of(status), status.reason, identities)
            self._ended.wait(LOOK_SECONDS)
        if client is not None:
            client.close()

    def _tell(self, address: str, state: str, reason: str, networks: frozenset[str]) -> None:
        if not self._ended.is_set():
            self._on_check(address, state, reason, networks)


def state_of(status: StatusReply) -> str:
    """Return the state that failover uses: `failed` if the evaluator is degraded and no network runs."""
    if status.draining:
        return "draining"
    if not status.ready:
        return status.state if status.state not in (READY, "degraded", "") else "failed"
    return status.state or READY


class Listener(Protocol):
    """The required part of a connection (EvaluatorClient)."""

    heard_at: float

    def send_keepalive(self) -> None:
        """Send a keepalive without waiting."""


class Keepalive:
    """The keepalive of one connection. Times are from time.perf_counter."""

    def __init__(self, client: Listener) -> None:
        self._client = client
        self._keepalive_at: float | None = None

    def has_stopped(self, now: float) -> bool:
        """Return True if the evaluator must be given up. Call it while answers are missing. Raises
        EvaluatorLost."""
        client = self._client
        if self._keepalive_at is not None and client.heard_at < self._keepalive_at:
            return now - self._keepalive_at >= PATIENCE_SECONDS
        self._keepalive_at = None
        if now - client.heard_at >= QUIET_SECONDS:
            self._keepalive_at = now
            client.send_keepalive()
        return False

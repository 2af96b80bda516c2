# SPDX-License-Identifier: GPL-3.0-or-later
"""Periodic health checks of several evaluators."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.evaluation.connection.failover import READY, UNREACHABLE

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.messages import StatusReply

LOOK_SECONDS = 0.4
"""Interval of health checks: the engine leaves a degraded evaluator within a second. A check costs the
evaluator about 0.6 ms of CPU time."""

ANSWER_SECONDS = 5.0
"""Timeout of a health check. A lost machine is detected earlier."""

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
        from protocol.errors import EvaluatorError

        client: EvaluatorClient | None = None
        while not self._ended.is_set():
            try:
                if client is None:
                    name = f"engine {os.getpid()}, watching"
                    client = EvaluatorClient(
                        address, timeout=ANSWER_SECONDS, name=name, keys=self._keys, handshake=False
                    )
                status = client.status()
            except EvaluatorError as error:
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

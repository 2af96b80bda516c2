# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at several evaluators again and again: whether each is there, and in which state."""

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
"""Time between two looks at an evaluator: one that is degraded is left within a second. A look costs it some
0.6 ms of processor time."""

ANSWER_SECONDS = 5.0
"""How long an evaluator may take to say how it is; that the machine is gone is noticed before."""

OnLook = Callable[[str, str, str, frozenset[str]], None]
"""Told the address, the state, the reason for it, and the identities of the networks that are served."""


class HealthCheck:
    """A thread and a connection for each address, so that one that does not answer holds up no other."""

    def __init__(self, addresses: Sequence[str], on_look: OnLook, *, keys: str = "") -> None:
        """on_look: called from the threads after each look. keys: the folder that keys are kept in."""
        self._keys = keys
        self._on_look = on_look
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(address,), name="evaluator-watch", daemon=True)
            for address in addresses
        ]

    def start(self) -> None:
        """Begin to look. Idempotent."""
        for thread in self._threads:
            if thread.ident is None and not self._ended.is_set():
                thread.start()

    def close(self) -> None:
        """Look no more. Does not wait for a look in flight."""
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
            self._on_look(address, state, reason, networks)


def state_of(status: StatusReply) -> str:
    """The state that decides about an evaluator: `failed` where it is degraded and no network runs."""
    if status.draining:
        return "draining"
    if not status.ready:
        return status.state if status.state not in (READY, "degraded", "") else "failed"
    return status.state or READY

# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an evaluator that owes answers and is silent is still there: the rules, without a clock.

One that computes says so within milliseconds, however long its batches take. One that was stopped, or hangs
as a whole, says nothing, and on a socket of this machine nothing else tells of it.
"""

from __future__ import annotations

from typing import Protocol

QUIET_SECONDS = 2.0
"""Without a message for so long, and the evaluator is asked whether it is there."""

PATIENCE_SECONDS = 10.0
"""Without an answer to that for so long, and it is given up. A machine that swaps may take seconds."""


class Listener(Protocol):
    """What is needed of a connection (EvaluatorClient)."""

    heard_at: float

    def knock(self) -> None:
        """Ask whether the evaluator is there, without waiting."""
        ...


class Keepalive:
    """Looks after one connection. Times are of time.monotonic."""

    def __init__(self, client: Listener) -> None:
        self._client = client
        self._knocked_at: float | None = None

    def has_stopped(self, now: float) -> bool:
        """Whether the evaluator is to be given up; to be asked while it owes answers and none has come.
        Raises EvaluatorLost."""
        client = self._client
        if self._knocked_at is not None and client.heard_at < self._knocked_at:
            return now - self._knocked_at >= PATIENCE_SECONDS
        self._knocked_at = None
        if now - client.heard_at >= QUIET_SECONDS:
            self._knocked_at = now
            client.knock()
        return False

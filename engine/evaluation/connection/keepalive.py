# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules for detecting a hung evaluator that owes answers, without a clock.

A computing evaluator answers a keepalive within milliseconds, however long its batches take. A stopped or
hung process does not answer, and a local socket gives no other sign of it.
"""

from __future__ import annotations

from typing import Protocol

QUIET_SECONDS = 2.0
"""Silence after which a keepalive is sent."""

PATIENCE_SECONDS = 10.0
"""Time without an answer to the keepalive after which the evaluator is given up. Swapping takes seconds."""


class Listener(Protocol):
    """The required part of a connection (EvaluatorClient)."""

    heard_at: float

    def send_keepalive(self) -> None:
        """Send a keepalive without waiting."""
        ...


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

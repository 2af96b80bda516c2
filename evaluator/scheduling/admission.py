# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission of requests: limits of queued positions per class and per client.

Each class has its own limit: self-play that fills its queue does not block play.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Scheduler
from protocol.errors import Overloaded
from protocol.messages import PRIORITIES


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits in positions: queued per network for each class; queued or running for a client."""

    play: int = 65536
    analysis: int = 65536
    selfplay: int = 65536
    client: int = 32768

    def of(self, rank: int) -> int:
        return (self.play, self.analysis, self.selfplay)[rank]


class Admission:
    """Counts the queued and running positions of clients. Its owner serialises access and may change
    `limits`."""

    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        self._positions_of: dict[Hashable, int] = {}

    def admit(self, request: Request, scheduler: Scheduler) -> None:
        """Count a request that is about to be queued. Raises Overloaded, without counting it, if its class's
        queue or its client's share is full."""
        queued, limit = scheduler.positions_of(request.rank), self.limits.of(request.rank)
        if queued + request.count > limit:
            name = PRIORITIES[request.rank]
            raise Overloaded(
                f"{queued} positions of class {name} are queued, of at most {limit}; try again later"
            )
        mine = self._positions_of.get(request.client, 0)
        if mine + request.count > self.limits.client:
            raise Overloaded(
                f"{mine} positions of this client are queued, of at most {self.limits.client}; "
                "keep fewer in flight"
            )
        self._positions_of[request.client] = mine + request.count

    def release(self, request: Request) -> None:
        """Stop counting a request that was answered or discarded."""
        left = self._positions_of.get(request.client, 0) - request.count
        if left > 0:
            self._positions_of[request.client] = left
        else:
            self._positions_of.pop(request.client, None)

    def forget(self, client: Hashable) -> None:
        """Delete the state of a disconnected client."""
        self._positions_of.pop(client, None)

# SPDX-License-Identifier: GPL-3.0-or-later
"""What the connections of one key use together, and the limits of that key."""

from __future__ import annotations

from math import ceil

from evaluator.scheduling.requests import Request
from protocol.common.keys.clients import Quota
from protocol.errors import NotAllowed, Overloaded
from protocol.wire.messages import PRIORITIES


class Usage:
    """The use of one key. name: in the list of clients. quota: its limits, replaced when the list is read
    again. requests: in flight. answered, positions, refused: counts of answers, of their positions, and of
    requests beyond a limit. Belongs to the I/O thread."""

    def __init__(self, name: str, quota: Quota) -> None:
        self.name = name
        self.quota = quota
        self.requests = 0
        self.answered = 0
        self.positions = 0
        self.refused = 0
        self._due_ms = 0.0
        """When the positions so far are paid for, at the key's rate."""

    def charge(self, request: Request) -> None:
        """Count a request in flight. Raises NotAllowed or Overloaded, which names the limit and when the
        request may come again."""
        quota, wanted = self.quota, PRIORITIES[request.rank]
        try:
            if quota.classes and wanted not in quota.classes:
                raise NotAllowed(
                    f"the key {self.name} is for classes={','.join(quota.classes)}, not {wanted}"
                )
            if quota.requests and self.requests >= quota.requests:
                raise Overloaded(
                    f"{self.requests} requests of the key {self.name} are in flight, and it has "
                    f"requests={quota.requests}: try again after an answer"
                )
            if self._due_ms > request.arrived_ms:
                raise Overloaded(
                    f"the key {self.name} has rate={quota.rate} positions a second: try again in "
                    f"{ceil(self._due_ms - request.arrived_ms)} ms"
                )
        except (NotAllowed, Overloaded):
            self.refused += 1
            raise
        if quota.rate:  # A second's worth may come at once.
            paid_ms = max(self._due_ms, request.arrived_ms - 1000.0)
            self._due_ms = paid_ms + 1000.0 * request.count / quota.rate
        else:
            self._due_ms = 0.0
        self.requests += 1

    def release(self, request: Request, *, answered: bool) -> None:
        """Stop counting a request in flight. answered: with a result."""
        self.requests -= 1
        self.answered += answered
        self.positions += request.count * answered

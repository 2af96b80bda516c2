# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests in flight, and their handling when the evaluator is lost or refuses them.

lost (the connection broke, the evaluator shuts down, its device failed): the link finds or starts another
    evaluator, and all unanswered requests are sent again
network changed: the request is sent again, unless its user objects
overloaded (the evaluator's queue is full of other clients' work): the request is sent again after a pause
refused for any other reason: an error, because a retry would be refused, too
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Generic, TypeVar

from engine.evaluation.errors import PipelineError
from engine.evaluation.link.link import EvaluatorLink
from protocol.errors import (
    DeviceFailed,
    Draining,
    EvaluatorLost,
    NetworkChanged,
    Overloaded,
    RemoteError,
)

if TYPE_CHECKING:
    from protocol.batch import PositionBatch
    from protocol.client import Completed, EvaluatorClient
    from protocol.wire.messages import Priority

OVERLOADED_SECONDS = 0.01
"""Pause if the evaluator's queue is full of other clients' work, as there is no event to wait for."""

R = TypeVar("R")


class Requests(Generic[R]):
    """The requests of one user of a link. R: the user's record of a request until the answer arrives.

    send_again: called with an unanswered request that must be sent again, from within any method. client: the
    connection for requests; None if it is lost. sent: the unanswered requests by number. Only one thread may
    use it.
    """

    def __init__(self, link: EvaluatorLink, priority: Priority, send_again: Callable[[R], object]) -> None:
        self._link = link
        self._priority: Priority = priority
        self._send_again = send_again
        self.client: EvaluatorClient | None = None
        self.sent: dict[int, R] = {}

    def connect(self) -> EvaluatorClient | None:
        """Adopt and return the link's current connection; None if it has none. Does not wait."""
        client = self._link.client
        if client is not self.client:
            self.client = client
            self._take_back()
            self._link.close_retired()
        return client

    def send(
        self, batch: PositionBatch, request: R, network: str | None = None, target_ms: float | None = None
    ) -> bool:
        """Send a batch; return False if there is no connection or it broke.

        network: name (default: the client's). target_ms: latency that it asks for; None for that of its
        class. The caller must not change the batch until it is answered, and keeps a request that was not
        sent. Raises PipelineError if it is refused.
        """
        client = self.client
        if client is None:
            return False
        try:
            identity = client.submit(batch, priority=self._priority, network=network, target_ms=target_ms)
        except EvaluatorLost as error:
            self.lost(str(error))
            return False
        except RemoteError as error:
            raise refusal(error) from None
        self.sent[identity] = request
        return True

    def receive(self, timeout_ms: float | None) -> tuple[R | None, Completed] | None:
        """Return the next answer: the request and its evaluation, or the error of its refusal.

        Waits up to timeout_ms (None: indefinitely). Returns None after the timeout or if the evaluator is
        lost. The request is None if it was given up before, or will be sent again.
        """
        client = self.client
        if client is not None and client is not self._link.client:  # The link has moved to a better one.
            self.connect()
            return None
        if client is None:
            return None
        try:
            completed = client.receive(timeout_ms)
            if completed is None and self.sent:
                self._link.check_keepalive(client)
        except EvaluatorLost as error:
            self.lost(str(error))
            return None
        if completed is None:
            if client.draining:  # Its queue may be long: do not wait for it.
                self.lost("it is about to end", refused=True)
            return None
        request = self.sent.pop(completed.id, None)
        if request is None or completed.evaluation is not None:
            return request, completed
        if isinstance(completed.error, Overloaded | Draining | DeviceFailed | NetworkChanged):
            self._send_again(request)
            if isinstance(completed.error, Overloaded):
                sleep(OVERLOADED_SECONDS)
            elif not isinstance(completed.error, NetworkChanged):
                self.lost(str(completed.error), refused=True)
            return None, completed
        return request, completed

    def lost(self, reason: str, *, refused: bool = False) -> None:
        """Let the link find or start another evaluator, and send unanswered requests again. refused: same as
        in `EvaluatorLink.lost`."""
        client, self.client = self.client, None
        self._take_back()
        if client is not None:
            self._link.lost(client, reason, refused=refused)

    def restore(self, client: EvaluatorClient, sent: Mapping[int, R]) -> None:
        """Record requests that the core has sent by a connection. If it was replaced, they are sent again."""
        if client is self.client:
            self.sent.update(sent)
        else:
            for request in sent.values():
                self._send_again(request)

    def cancel(self, unwanted: Callable[[R], bool]) -> None:
        """Cancel the requests for which `unwanted` returns True, if the evaluator has not begun them."""
        client = self.client
        if client is None:
            return
        with suppress(EvaluatorLost):  # The next sender gets the error.
            for identity, request in self.sent.items():
                if unwanted(request):
                    client.cancel(identity)

    def _take_back(self) -> None:
        for request in self.sent.values():
            self._send_again(request)
        self.sent.clear()


def refusal(error: RemoteError | None) -> PipelineError:
    """Return the error of a request that would be refused again."""
    return PipelineError(f"the evaluator refuses the batch: {error}")

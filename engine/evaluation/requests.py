# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that the evaluator has been sent, and what becomes of them when it is lost or refuses them.

lost (the connection broke, the evaluator ends, its device failed): the link finds or starts another one,
    and every request that was not answered is to be sent again
network changed (the evaluator has another one now): it is to be sent again, which its user may not want
overloaded (its queue is full of others' work): the request is to be sent again after a pause
refused for any other reason: an error, since it would be refused again
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import sleep
from typing import TYPE_CHECKING, Generic, TypeVar

from engine.evaluation.connection.link import EvaluatorLink
from engine.evaluation.errors import PipelineError
from protocol.errors import (
    DeviceFailed,
    Draining,
    EvaluatorLost,
    NetworkChanged,
    Overloaded,
    RemoteError,
)

if TYPE_CHECKING:
    from protocol._core import Stream
    from protocol.batch import PositionBatch
    from protocol.client import Completed, EvaluatorClient
    from protocol.messages import Priority

OVERLOADED_SECONDS = 0.01
"""Pause when the evaluator's queue is full of others' work: there is nothing to wait on."""

R = TypeVar("R")
T = TypeVar("T")


class Requests(Generic[R]):
    """The requests of one user of a link. R is what the user keeps of a request until its answer comes.

    send_again: called with a request that got no answer and is to be sent again, from within any method.
    target_ms: latency that the requests ask for; None for that of their class.
    Belongs to one thread.
    """

    def __init__(
        self,
        link: EvaluatorLink,
        priority: Priority,
        send_again: Callable[[R], object],
        *,
        target_ms: float | None = None,
    ) -> None:
        self._link = link
        self._priority: Priority = priority
        self.target_ms = target_ms
        self._send_again = send_again
        self._client: EvaluatorClient | None = None
        self._sent: dict[int, R] = {}

    @property
    def sent(self) -> Collection[R]:
        """The requests that have been sent and not answered: always those of the moment."""
        return self._sent.values()

    @property
    def client(self) -> EvaluatorClient | None:
        """The connection that requests go through, None if it is lost."""
        return self._client

    def connect(self) -> EvaluatorClient | None:
        """Take the connection that the link has now, None if it has none. Does not wait."""
        client = self._link.client
        if client is not self._client:
            self._client = client
            self._take_back()
            self._link.close_retired()
        return client

    def send(self, batch: PositionBatch, request: R, *, network: str | None = None) -> bool:
        """Send a batch through the connection, if there is one; False if there is none or it broke.

        The batch must stay as it is until it is answered. A request for which this is False is still the
        caller's. Raises PipelineError if it is refused.
        """
        client = self._client
        if client is None:
            return False
        try:
            identity = client.submit(
                batch, priority=self._priority, network=network, target_ms=self.target_ms
            )
        except EvaluatorLost as error:
            self.lost(str(error))
            return False
        except RemoteError as error:
            raise refusal(error) from None
        self._sent[identity] = request
        return True

    def receive(self, timeout_ms: float | None) -> tuple[R | None, Completed] | None:
        """The next answer: the request and its evaluation, or the error for which it is refused.

        Waits at most timeout_ms (None: as long as it takes); returns None if nothing came, or the evaluator
        was lost. The request is None where there is nothing to do about the answer: it was given up before,
        or is to be sent again.
        """
        client = self._client
        if client is not None and client is not self._link.client:  # There is a better one now.
            self.connect()
            return None
        if client is None:
            return None
        try:
            completed = client.receive(timeout_ms)
            if completed is None and self._sent:
                self._link.look_after(client)
        except EvaluatorLost as error:
            self.lost(str(error))
            return None
        if completed is None:
            if client.draining:  # Its queue may be long; another evaluator is better than the wait for it.
                self.lost("it is about to end", refused=True)
            return None
        request = self._sent.pop(completed.id, None)
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

    def exchange(self, talk: Callable[[EvaluatorClient, Stream, dict[int, R]], T]) -> T | None:
        """Have somebody else send and receive on the connection's own socket: `talk` gets the connection, its
        socket and the requests that are in flight, by number, and changes these to what they are afterwards.

        None, and nothing done, where no request is in flight or the connection has no such socket.
        """
        client = self._client
        if client is None or client is not self._link.client or not self._sent:
            return None
        stream = client.stream
        return None if stream is None else talk(client, stream, self._sent)

    def lost(self, reason: str, *, refused: bool = False) -> None:
        """Have the link find or start another evaluator; what this one has not answered is sent again.
        refused: as of `EvaluatorLink.lost`."""
        client, self._client = self._client, None
        self._take_back()
        if client is not None:
            self._link.lost(client, reason, refused=refused)

    def release(self) -> dict[int, R]:
        """Give up all requests and return them by number. Their answers come with no request."""
        released = dict(self._sent)
        self._sent.clear()
        return released

    def _take_back(self) -> None:
        for request in self._sent.values():
            self._send_again(request)
        self._sent.clear()


def refusal(error: RemoteError | None) -> PipelineError:
    """The error of a request that would be refused again."""
    return PipelineError(f"the evaluator refuses the batch: {error}")

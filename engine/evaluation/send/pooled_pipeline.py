# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of one search, which a PooledEvaluator sends."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Generic

from engine._core import Batch, Tree
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError
from engine.evaluation.link.process import NetworkKey
from engine.evaluation.send.pooled import PooledEvaluator
from engine.evaluation.spread.joint_request import Part, S, request_of
from protocol.batch import EvaluationBatch

if sys.platform == "linux":
    from engine._core import Exchange

if TYPE_CHECKING:
    from engine._core import BatchRule
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import NetworkInfo


class PooledPipeline(Generic[S]):
    """The Pipeline of one search.

    search: the owner of the batches. failure: why the evaluator rejected them. The search then ends, or
    restarts after a NetworkChangedError. alone: no other search sends batches, so none waits to be joined,
    and the device computes one while the search collects the next. Otherwise batches sent at once would keep
    the evaluator so busy that those of the others wait.
    """

    def __init__(
        self,
        search: S,
        tree: Tree,
        evaluator: PooledEvaluator[S],
        network: NetworkKey,
        identity: str,
        rule: BatchRule,
    ) -> None:
        """identity: of the network that evaluated the tree."""
        self.target_ms: float | None = None
        """Latency that the next requests ask for; None for that of their class."""
        self.search = search
        self.network = network
        self.identity = identity
        self.failure: PipelineError | NoEvaluatorError | NetworkChangedError | None = None
        self.tree = tree
        self._evaluator = evaluator
        self._rule = rule
        self.alone = False
        self._free: list[Batch] = []
        self.waiting: list[Batch] = []
        """The batches in flight that Python has sent or taken back."""
        self._abandoned: list[Batch] = []
        self._exchange: Exchange | None = None
        self._lent: tuple[EvaluatorClient, NetworkInfo] | None = None
        """The connection and the network that the exchange has."""

    @property
    def in_flight(self) -> int:
        return len(self.waiting) + (self._exchange.in_flight if self._exchange is not None else 0)

    @property
    def in_flight_visits(self) -> int:
        return sum([batch.wanted for batch in self.waiting])

    def take(self) -> Batch:
        return self._free.pop() if self._free else Batch(self._rule.capacity)

    def release(self, batch: Batch) -> None:
        self._free.append(batch)

    def submit(self, batch: Batch) -> None:
        self.waiting.append(batch)
        self._evaluator.add(self, batch)
        if self.alone:
            self._evaluator.flush(may_wait=False)

    def lend(self) -> Exchange | None:
        """Let the core have the connection and the batches in flight until `take_back`. Return its exchange,
        or None if other searches use the evaluator, or it has something for Python."""
        if self._lent is not None:
            return self._exchange
        evaluator = self._evaluator
        if len(evaluator.upstreams) > 1 or evaluator.added or sys.platform != "linux":
            return None
        requests = evaluator.upstreams[0]
        client, served = requests.client, requests.current(self.network)
        if client is None or served is None or served.identity != self.identity or client.stream is None:
            return None
        sent: dict[int, Batch] = {}
        for identity, request in requests.sent.items():
            part = request.parts[0]
            if part.pipeline is self and len(request.parts) == 1 and part.batch in self.waiting:
                sent[identity] = part.batch
        if len(sent) != len(self.waiting):
            return None
        if self._exchange is None:
            self._exchange = Exchange(self.tree, self._rule, evaluator.priority)
        self._exchange.lend(
            client.stream,
            network=served.info.name,
            content_hash=served.info.content_hash,
            next_id=client.next_id,
            target_ms=self.target_ms,
            sent=sent,
        )
        client.exchanged(sent, {}, client.next_id, heard=False)
        for identity in sent:
            del requests.sent[identity]
        self.waiting.clear()
        self._lent = client, served.info
        return self._exchange

    def take_back(self) -> None:
        """Take what the core has, so that Python may use the connection."""
        if self._lent is None or self._exchange is None:
            return
        (client, network), self._lent = self._lent, None
        exchange = self._exchange
        sent = exchange.take_back()
        self.waiting += sent.values()
        in_flight = {identity: (each.size, each.move_count, network) for identity, each in sent.items()}
        client.exchanged((), in_flight, exchange.next_id, heard=exchange.answers > 0)
        requests = self._evaluator.upstreams[0]
        parts = {identity: Part(self, each, each.size) for identity, each in sent.items()}
        requests.restore(client, {each: request_of(self.network, [part]) for each, part in parts.items()})
        if exchange.first_sent is not None:
            self._evaluator.count(exchange.positions, exchange.answers, perf_counter() - exchange.first_sent)

    def abandon(self) -> None:
        self.take_back()
        # The arrays may still be in transmission, so these batches are not reused.
        for batch in self.waiting:
            self.tree.abandon(batch)
        self._abandoned += self.waiting
        self.waiting.clear()

    def waits_for(self, batch: Batch) -> bool:
        """Return True if the search still waits for a batch."""
        return batch in self.waiting

    def apply(self, batch: Batch, evaluation: EvaluationBatch) -> bool:
        """Apply the evaluations of a batch; return False if the search no longer waits for it. Then they go
        to the cache, for the next search."""
        if self.waits_for(batch):
            self.waiting.remove(batch)
            error = self._applied(batch, evaluation)
            if error is None:  # A failure of another batch stays: that one is never answered.
                self.release(batch)
            else:
                self.failure = error
            return True
        if batch in self._abandoned:
            self._abandoned.remove(batch)
            self._applied(batch, evaluation)
        return False

    def _applied(self, batch: Batch, evaluation: EvaluationBatch) -> PipelineError | None:
        """Apply the evaluations of a batch. Return the error, and cancel the batch, if they are invalid."""
        try:
            self.tree.apply(batch, evaluation.logits, evaluation.wdl, evaluation.moves_left)
        except ValueError as error:
            self.tree.cancel(batch)
            return PipelineError(f"the evaluator sent an unusable result: {error}")
        return None

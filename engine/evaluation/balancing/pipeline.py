# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of one search, which a PooledEvaluator sends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Generic

from engine._core import Batch, Tree
from engine.evaluation.balancing.joint_request import S, request_of
from engine.evaluation.balancing.pooled import PooledEvaluator
from engine.evaluation.connection.process import NetworkKey
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError, PipelineError
from protocol.batch import EvaluationBatch

if sys.platform == "linux":
    from engine._core import Bursts

if TYPE_CHECKING:
    from engine.evaluation.bursts import BurstEnd, BurstLimits


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
        capacity: int,
        *,
        alone: bool = False,
    ) -> None:
        """identity: of the network that evaluated the tree."""
        self.target_ms: float | None = None
        """Latency that the next requests ask for; None for that of their class."""
        self.evaluations = 0
        self.batches = 0
        self.in_flight = 0
        self.search = search
        self.network = network
        self.identity = identity
        self.failure: PipelineError | NoEvaluatorError | NetworkChangedError | None = None
        self._tree = tree
        self._evaluator = evaluator
        self._capacity = capacity
        self.alone = alone
        self._free: list[Batch] = []
        self.waiting: list[Batch] = []
        """The batches in flight."""
        self._abandoned: list[Batch] = []
        self._bursts: Bursts | None = None
        self._bursts_target_ms: float | None = None

    @property
    def in_flight_visits(self) -> int:
        return sum([batch.wanted for batch in self.waiting])

    def take(self) -> Batch:
        return self._free.pop() if self._free else Batch(self._capacity)

    def release(self, batch: Batch) -> None:
        self._free.append(batch)

    def submit(self, batch: Batch) -> None:
        self.evaluations += batch.size
        self.batches += 1
        self.waiting.append(batch)
        self.in_flight += 1
        if not self.alone:
            self._evaluator.add(self, batch)
        elif not self._evaluator.send(self, batch):
            self._evaluator.add(self, batch)
            self._evaluator.flush(may_wait=False)

    def burst(self, limits: BurstLimits) -> BurstEnd | None:
        """Apply results and send batches without the interpreter for some milliseconds. Return why it ended,
        or None if it cannot begin: other searches use the evaluator, or it has something for Python."""
        evaluator = self._evaluator
        if len(evaluator.upstreams) > 1 or evaluator.added or sys.platform != "linux":
            return None
        requests = evaluator.upstreams[0].requests
        client, served = requests.client, evaluator.upstreams[0].current(self.network)
        if client is None or served is None or served.identity != self.identity:
            return None
        sent: dict[int, Batch] = {}
        for identity, request in requests.sent.items():
            part = request.parts[0]
            if part.pipeline is self and len(request.parts) == 1 and part.batch in self.waiting:
                sent[identity] = part.batch
        stream = client.stream
        if stream is None or len(sent) != self.in_flight:
            return None
        bursts = self._bursts
        if bursts is None or self._bursts_target_ms != self.target_ms:
            bursts = self._bursts = Bursts(evaluator.priority, self.target_ms)
            self._bursts_target_ms = self.target_ms
        while len(sent) + len(self._free) < limits["rule"].in_flight:
            self._free.append(Batch(self._capacity))
        before = set(sent)
        try:
            return bursts.run(
                self._tree,
                stream,
                network=served.info.name,
                content_hash=served.info.content_hash,
                next_id=client.next_id,
                sent=sent,
                spare=self._free,
                **limits,
            )
        finally:  # Ctrl-C raises in the main thread as soon as the core returns.
            self.waiting[:] = sent.values()
            self.in_flight = len(sent)
            self.evaluations += bursts.evaluations
            self.batches += bursts.batches
            answered, positions = before.difference(sent), bursts.evaluations
            for identity in answered:
                positions += requests.sent.pop(identity).size
            added = {identity: batch for identity, batch in sent.items() if identity not in before}
            for identity, batch in added.items():
                positions -= batch.size
                requests.sent[identity] = request_of(self, batch)
            client.exchanged(
                answered,
                {identity: (batch.size, batch.move_count, served.info) for identity, batch in added.items()},
                bursts.next_id,
                heard=bursts.answers > 0,
            )
            evaluator.count(positions, len(answered) + bursts.batches - len(added))

    def abandon(self) -> None:
        # The arrays may still be in transmission, so these batches are not reused.
        for batch in self.waiting:
            self._tree.abandon(batch)
        self._abandoned += self.waiting
        self.waiting.clear()
        self.in_flight = 0

    def waits_for(self, batch: Batch) -> bool:
        """Return True if the search still waits for a batch."""
        return batch in self.waiting

    def apply(self, batch: Batch, evaluation: EvaluationBatch) -> bool:
        """Apply the evaluations of a batch; return False if the search no longer waits for it. Then they go
        to the cache, for the next search."""
        if self.waits_for(batch):
            self.waiting.remove(batch)
            self.in_flight -= 1
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

    def of_tree(self, tree: Tree) -> bool:
        """Return True if its batches were collected from this tree."""
        return self._tree is tree

    def _applied(self, batch: Batch, evaluation: EvaluationBatch) -> PipelineError | None:
        """Apply the evaluations of a batch. Return the error, and cancel the batch, if they are invalid."""
        try:
            self._tree.apply(batch, evaluation.logits, evaluation.wdl, evaluation.moves_left)
        except ValueError as error:
            self._tree.cancel(batch)
            return PipelineError(f"the evaluator sent an unusable result: {error}")
        return None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Pipelines evaluate a search's batches: on the evaluator, or at random in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from engine._core import Batch, Tree
from engine.evaluation.bursts import BurstRunner
from engine.evaluation.connection.link import EvaluatorLink
from engine.evaluation.encoding import position_batch
from engine.evaluation.errors import NetworkChangedError
from engine.evaluation.late_results import LateResults, apply_evaluation
from engine.evaluation.requests import Requests, refusal

if TYPE_CHECKING:
    from engine.evaluation.bursts import BurstEnd, BurstLimits
    from protocol._core import Stream
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo, Priority


class Pipeline(Protocol):
    """Evaluation of a search's batches. The pipeline owns a batch from `submit` until it is applied.

    evaluations, batches: positions and batches submitted.
    """

    evaluations: int
    batches: int

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet applied."""
        ...

    @property
    def in_flight_visits(self) -> int:
        """Positions in flight that get a visit, look-ahead excluded."""
        ...

    def take(self) -> Batch:
        """Return an empty batch to collect into."""
        ...

    def give_back(self, batch: Batch) -> None:
        """Return a batch from `take` that was not submitted."""
        ...

    def submit(self, batch: Batch) -> None:
        """Send a batch without waiting."""
        ...

    def poll(self, timeout_ms: float) -> bool:
        """Wait for a result and apply it; return False if none arrived. Raises PipelineError, and
        NetworkChangedError if the evaluator's network is not the tree's."""
        ...

    def burst(self, limits: BurstLimits) -> BurstEnd | None:
        """Apply results and send batches without the interpreter for some milliseconds. Return why it ended,
        or None if bursts are impossible. Raises the same as `poll`."""
        ...

    def abandon(self) -> None:
        """Take back the visits of all batches in flight, at once. Their late results go to the cache."""
        ...


class InstantPipeline:
    """Evaluate at random in this process, at once, to measure the search alone."""

    def __init__(self, tree: Tree, capacity: int) -> None:
        self.in_flight = 0
        self.in_flight_visits = 0
        self.evaluations = 0
        self.batches = 0
        self._tree = tree
        self._batch = Batch(capacity)

    def take(self) -> Batch:
        return self._batch

    def give_back(self, batch: Batch) -> None:
        pass

    def submit(self, batch: Batch) -> None:
        self.evaluations += batch.size
        self.batches += 1
        self._tree.apply_random(batch)

    def poll(self, timeout_ms: float) -> bool:
        return False

    def burst(self, limits: BurstLimits) -> BurstEnd | None:
        return None

    def abandon(self) -> None:
        pass


class SpareBatches:
    """A free list of batches of one capacity."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free: list[Batch] = []

    def take(self) -> Batch:
        return self._free.pop() if self._free else Batch(self._capacity)

    def give_back(self, batch: Batch) -> None:
        self._free.append(batch)


class RemotePipeline(SpareBatches):
    """Send batches to the evaluator of a link.

    If the evaluator is lost, the batches in flight are sent again once the link has another one. If that has
    another network, or the evaluator announces one, each method that sends or receives raises
    NetworkChangedError. Only one thread may use it.
    """

    def __init__(
        self,
        tree: Tree,
        link: EvaluatorLink,
        *,
        capacity: int,
        network: NetworkInfo,
        priority: Priority = "play",
        target_ms: float | None = None,
        clock_runs: Callable[[], bool] = lambda: True,
        late: LateResults | None = None,
        bursts: bool = True,
    ) -> None:
        """network: source of the tree's evaluations. target_ms: latency that requests ask for once clock_runs
        returns True; None for that of their class. late: results that earlier searches await (default: none).
        bursts: False for measurements and comparisons."""
        super().__init__(capacity)
        self.evaluations = 0
        self.batches = 0
        self._tree = tree
        self._link = link
        self._network = network
        self._unsent: list[Batch] = []
        self._requests = Requests(link, priority, self._unsent.append)
        self._sent = self._requests.sent
        self._late = late or LateResults()
        # Only Linux has the sockets for bursts.
        self._bursts = BurstRunner(tree, priority) if bursts and sys.platform == "linux" else None
        self._priority: Priority = priority
        self._target_ms = target_ms
        self._clock_runs = clock_runs
        self._take_late()

    @property
    def in_flight(self) -> int:
        return len(self._sent) + len(self._unsent)

    @property
    def in_flight_visits(self) -> int:
        return sum(batch.wanted for batch in (*self._sent, *self._unsent))

    def submit(self, batch: Batch) -> None:
        self.evaluations += batch.size
        self.batches += 1
        self._unsent.append(batch)
        self._send()

    def poll(self, timeout_ms: float) -> bool:
        if self._unsent and not self._send():
            # Raises NoEvaluatorError if all attempts failed: the search ends with the tree as it is.
            self._link.wait(timeout_ms / 1000)
            return False
        answer = self._requests.receive(timeout_ms)
        if answer is None:
            self._check_network(self._requests.client)
            return False
        batch, completed = answer
        if batch is None:  # The request was abandoned, or will be sent again.
            self._late.take(self._requests.client, completed)
            return False
        if completed.evaluation is None:
            self._tree.cancel(batch)
            raise refusal(completed.error)
        apply_evaluation(self._tree, batch, completed.evaluation)
        self.give_back(batch)
        return True

    def burst(self, limits: BurstLimits) -> BurstEnd | None:
        self._hurry()
        bursts = self._bursts
        if bursts is None or self._unsent:
            return None
        while len(self._sent) + len(self._free) < limits.rule.in_flight:
            self._free.append(Batch(self._capacity))

        def talk(client: EvaluatorClient, stream: Stream, sent: dict[int, Batch]) -> BurstEnd | None:
            self._check_network(client)
            if client.max_batch < self._capacity:  # Another evaluator: `submit` reports it.
                return None
            end = bursts.run(client, stream, sent, self._free, limits)
            self.evaluations += bursts.evaluations
            self.batches += bursts.batches
            return end

        return self._requests.exchange(talk)

    def abandon(self) -> None:
        for batch in self._unsent:
            self._tree.cancel(batch)
        self._unsent.clear()
        # The arrays may still be in transmission, so these batches are not reused.
        for batch in self._sent:
            self._tree.abandon(batch)
        self._late.expect(self._requests.client, self._tree, self._requests.release())

    def _take_late(self) -> None:
        """Take results that arrived since the last search, before this one requests them again."""
        client = self._requests.connect()
        while self._late.awaited_from(client):
            answer = self._requests.receive(0.0)
            if answer is None:
                break
            self._late.take(client, answer[1])
        self._late.hurry()

    def _send(self) -> bool:
        """Send the unsent batches; return False if there is no evaluator."""
        client = self._requests.connect()
        if client is None:
            return False
        self._check_network(client)
        self._hurry()
        while self._unsent:
            batch = self._unsent[-1]
            if not self._requests.send(position_batch(batch), batch):
                return False
            self._unsent.pop()
        return True

    def _hurry(self) -> None:
        """Ask for the target latency once the clock runs: while pondering, others' moves come first."""
        if self._target_ms is None or self._requests.target_ms is not None or not self._clock_runs():
            return
        self._requests.target_ms = self._target_ms
        if self._bursts is not None:
            self._bursts = BurstRunner(self._tree, self._priority, self._target_ms)

    def _check_network(self, client: EvaluatorClient | None) -> None:
        """Raise NetworkChangedError if the connection's network is not the tree's."""
        if client is None or client.network is self._network:
            return
        if client.network.identity != self._network.identity:
            raise NetworkChangedError("the evaluator has another network now")
        self._network = client.network

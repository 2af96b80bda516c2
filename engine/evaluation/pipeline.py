"""Batches on their way to the evaluator and back: submit, wait, apply, and send again what was lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from engine._core import Batch, Tree
from engine.evaluation.link import EvaluatorLink
from protocol.batch import POSITION_DTYPE, PositionBatch
from protocol.errors import (
    DeviceFailed,
    Draining,
    EvaluatorLost,
    EvaluatorTimeout,
    Overloaded,
    RemoteError,
)

if TYPE_CHECKING:
    from protocol.client import Completed, EvaluatorClient
    from protocol.messages import Priority


class PipelineError(RuntimeError):
    """The evaluator will not evaluate what this search sends. The message says why."""


class Pipeline(Protocol):
    """Where a search sends its batches. A batch belongs to the pipeline from `submit` until it is applied.

    evaluations and batches count what was submitted.
    """

    evaluations: int
    batches: int

    @property
    def in_flight(self) -> int:
        """Batches submitted and not applied."""
        ...

    @property
    def in_flight_positions(self) -> int:
        """Positions in these."""
        ...

    def take(self) -> Batch:
        """An empty batch to collect into."""
        ...

    def give_back(self, batch: Batch) -> None:
        """Return a batch from `take` that was not submitted."""
        ...

    def submit(self, batch: Batch) -> None:
        """Send a batch on its way, without waiting."""
        ...

    def poll(self, timeout_ms: float) -> bool:
        """Wait for a batch to come back and apply it; False if none did. Raises PipelineError."""
        ...

    def abandon(self) -> None:
        """Take back the visits of everything in flight, at once."""
        ...


class InstantPipeline:
    """Evaluates at random inside the process, at once: measures the search alone."""

    def __init__(self, tree: Tree, capacity: int) -> None:
        self.in_flight = 0
        self.in_flight_positions = 0
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

    def abandon(self) -> None:
        pass


class SpareBatches:
    """Batches of one capacity that are used again."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free: list[Batch] = []

    def take(self) -> Batch:
        return self._free.pop() if self._free else Batch(self._capacity)

    def give_back(self, batch: Batch) -> None:
        self._free.append(batch)


class RemotePipeline(SpareBatches):
    """Sends batches to the evaluator of a link.

    When the evaluator is lost, the batches in flight stay as they are and are sent again as soon as the link
    has one: the search goes on where it was. Belongs to one thread.

    """

    def __init__(
        self,
        tree: Tree,
        link: EvaluatorLink,
        *,
        capacity: int,
        input_format: int,
        priority: Priority = "play",
        log: Callable[[str], None],
    ) -> None:
        super().__init__(capacity)
        self.evaluations = 0
        self.batches = 0
        self._tree = tree
        self._link = link
        self._input_format = input_format
        self._priority: Priority = priority
        self._log = log
        self._client: EvaluatorClient | None = None
        self._sent: dict[int, Batch] = {}
        self._unsent: list[Batch] = []

    @property
    def in_flight(self) -> int:
        return len(self._sent) + len(self._unsent)

    @property
    def in_flight_positions(self) -> int:
        return sum(batch.size for batch in (*self._sent.values(), *self._unsent))

    def submit(self, batch: Batch) -> None:
        self.evaluations += batch.size
        self.batches += 1
        self._unsent.append(batch)
        self._send()

    def poll(self, timeout_ms: float) -> bool:
        if self._unsent and not self._send():
            return self._wait_for_evaluator(timeout_ms)
        client = self._client
        if client is None:
            return False
        try:
            completed = client.receive(timeout_ms)
        except EvaluatorLost as error:
            self._lost(client, str(error))
            return False
        return completed is not None and self._accept(completed)

    def _accept(self, completed: Completed) -> bool:
        """Take an answer; True if it was an evaluation of this search. Raises PipelineError."""
        client = self._client
        batch = self._sent.pop(completed.id, None)
        if batch is None or client is None:  # An answer to what an earlier search abandoned.
            return False
        evaluation = completed.evaluation
        if evaluation is not None:
            try:
                self._tree.apply(batch, evaluation.logits, evaluation.wdl, evaluation.moves_left)
            except ValueError as error:
                self._tree.cancel(batch)
                raise PipelineError(f"the evaluator sent what cannot be used: {error}") from None
            self._free.append(batch)
            return True
        self._unsent.append(batch)
        self._refused(client, completed.error)
        return False

    def abandon(self) -> None:
        client = self._client
        for identity, batch in self._sent.items():
            self._tree.cancel(batch)
            if client is not None:
                try:
                    client.cancel(identity)
                except EvaluatorLost:
                    client = None
        for batch in self._unsent:
            self._tree.cancel(batch)
        # The arrays may still be on their way out, so these batches are not filled again.
        self._sent.clear()
        self._unsent.clear()

    def _send(self) -> bool:
        """Send what is unsent; False if there is no evaluator to send it to."""
        client = self._client
        if client is None or client is not self._link.client:
            client = self._client = self._link.client
            if client is None:
                return False
            if client.network.input_format != self._input_format:
                raise PipelineError("the evaluator's network now takes another input format")
        while self._unsent:
            batch = self._unsent[-1]
            try:
                identity = client.submit(_position_batch(batch), priority=self._priority)
            except EvaluatorLost as error:
                self._lost(client, str(error))
                return False
            except RemoteError as error:
                raise PipelineError(f"the evaluator refuses the batch: {error}") from None
            self._unsent.pop()
            self._sent[identity] = batch
        return True

    def _wait_for_evaluator(self, timeout_ms: float) -> bool:
        # Raises NoEvaluatorError if there is no hope: the search ends with the tree as it stands.
        self._link.wait(timeout_ms / 1000)
        return False

    def _lost(self, client: EvaluatorClient, reason: str) -> None:
        """Tell that `client` has failed: what it has not answered is sent again when there is another."""
        self._unsent.extend(self._sent.values())
        self._sent.clear()
        self._client = None
        self._link.lost(client, reason)

    def _refused(self, client: EvaluatorClient, error: RemoteError | None) -> None:
        if isinstance(error, Overloaded):
            time.sleep(0.01)  # Its queue is full of others' work; there is nothing to wait on.
        elif isinstance(error, Draining | DeviceFailed | EvaluatorTimeout):
            self._lost(client, str(error))
        else:
            raise PipelineError(f"the evaluator refuses the batch: {error}")


def _position_batch(batch: Batch) -> PositionBatch:
    """The batch's own memory as the arrays that travel; nothing is copied."""
    positions = batch.positions
    return PositionBatch(
        positions.view(POSITION_DTYPE).reshape(len(positions)), batch.move_offsets, batch.moves
    )

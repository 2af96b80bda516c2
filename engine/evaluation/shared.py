"""One evaluator for many searches: their batches travel together, in few requests.

A request costs both processes some 150 µs of processor time, however few positions it carries, and on a CPU
backend that time is the network's. So what the searches have collected in one round of the pool goes into
requests of the size that the evaluator recommends, or larger where there are many positions.

Each search submits its batches to a SharedPipeline of its own. SharedEvaluator.flush puts them together and
sends them, SharedEvaluator.receive takes the answers apart; both return the searches (S, whatever the owner
of the evaluator calls a search) that can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from engine._core import Batch, Tree
from engine.evaluation.connecting import served_network
from engine.evaluation.encoding import position_batch
from engine.evaluation.errors import NoEvaluatorError, PipelineError
from engine.evaluation.late import apply_evaluation, cache_evaluation
from engine.evaluation.link import EvaluatorLink
from engine.evaluation.pipeline import SpareBatches
from engine.evaluation.process import EvaluatorSettings, NetworkKey
from engine.evaluation.requests import Requests, refusal
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import Draining, EvaluatorError, EvaluatorLost

if TYPE_CHECKING:
    from protocol.client import Completed, EvaluatorClient
    from protocol.messages import NetworkInfo, Priority

ENOUGH_REQUESTS = 3
"""With so many full requests on their way, two at work and one waiting, more positions wait here until they
fill another one. Full is what the evaluator recommends, or a quarter of all positions if that is more."""

WORTH_SENDING = 128
"""Positions for which a request is worth its cost while another one is under way. Several processes on one
fast evaluator have few positions each. Sent as they are ready, they would give its one I/O thread more to do
with requests than the device has with positions."""

S = TypeVar("S")


class SharedPipeline(SpareBatches, Generic[S]):
    """The batches of one search among those of others: the Pipeline of a pool's searches.

    search: whose batches these are. failure: why the evaluator will not evaluate what it sent; it is over
    then.
    """

    def __init__(
        self,
        search: S,
        tree: Tree,
        evaluator: SharedEvaluator[S],
        network: NetworkKey,
        identity: str,
        capacity: int,
    ) -> None:
        """identity: of the network whose evaluations the tree holds."""
        super().__init__(capacity)
        self.evaluations = 0
        self.batches = 0
        self.search = search
        self.network = network
        self.identity = identity
        self.failure: PipelineError | NoEvaluatorError | None = None
        self._tree = tree
        self._evaluator = evaluator
        self._on_their_way: list[Batch] = []
        self._abandoned: list[Batch] = []

    @property
    def in_flight(self) -> int:
        return len(self._on_their_way)

    @property
    def in_flight_visits(self) -> int:
        return sum(batch.wanted for batch in self._on_their_way)

    def submit(self, batch: Batch) -> None:
        self.evaluations += batch.size
        self.batches += 1
        self._on_their_way.append(batch)
        self._evaluator.add(self, batch)

    def poll(self, timeout_ms: float) -> bool:
        return False  # The pool waits for all searches at once.

    def abandon(self) -> None:
        # The arrays may still be on their way out, so these batches are not filled again.
        for batch in self._on_their_way:
            self._tree.abandon(batch)
        self._abandoned += self._on_their_way
        self._on_their_way.clear()

    def waits_for(self, batch: Batch) -> bool:
        """Whether a batch is still wanted."""
        return batch in self._on_their_way

    def apply(self, batch: Batch, evaluation: EvaluationBatch) -> bool:
        """Take the evaluations of a batch; False if the search does not wait for it any more. They then go
        to the cache, for the next one."""
        if batch in self._abandoned:
            self._abandoned.remove(batch)
            cache_evaluation(self._tree, batch, evaluation)
        if batch not in self._on_their_way:
            return False
        self._on_their_way.remove(batch)
        try:
            apply_evaluation(self._tree, batch, evaluation)
        except PipelineError as error:
            self.failure = error
        else:
            self.give_back(batch)
        return True


@dataclass(slots=True, eq=False)
class _Part(Generic[S]):
    """A batch of a search in a request, or on its way into one."""

    pipeline: SharedPipeline[S]
    batch: Batch
    size: int

    @property
    def wanted(self) -> bool:
        return self.pipeline.waits_for(self.batch)


@dataclass(slots=True, eq=False)
class _JointRequest(Generic[S]):
    """Batches of several searches in one request. shapes: positions and moves of each."""

    network: NetworkKey
    parts: Sequence[_Part[S]]
    shapes: Sequence[tuple[int, int]]
    size: int

    def hand_out(self, evaluation: EvaluationBatch) -> set[S]:
        """Give each search its part of an answer, those that no longer want it left out; returns the
        others."""
        served: set[S] = set()
        for part, own in zip(self.parts, evaluation.split(self.shapes), strict=True):
            if part.pipeline.apply(part.batch, own):
                served.add(part.pipeline.search)
        return served


class SharedEvaluator(Generic[S]):
    """A link and the batches of the searches that use it. Used by the pool's thread alone, but for `link`.

    first_sent (monotonic seconds), evaluations, device_batches: what came back so far; a request counts as
    the share that it had in its device batch. searches: how many were finished, counted by the pool.
    """

    def __init__(
        self, settings: EvaluatorSettings, log: Callable[[str], None], priority: Priority, interrupt: int
    ) -> None:
        """interrupt: a file descriptor; `receive` returns when it becomes readable."""
        self.log = log
        self.link = EvaluatorLink(settings, log)
        self.link.start()
        self.first_sent: float | None = None
        self.evaluations = 0
        self.searches = 0
        self.device_batches = 0.0
        self._interrupt = interrupt
        self._networks: dict[NetworkKey, NetworkInfo] = {}
        self._unsent: dict[NetworkKey, list[_Part[S]]] = {}
        self._added = 0
        self._requests: Requests[_JointRequest[S]] = Requests(self.link, priority, self._send_again)

    @property
    def client(self) -> EvaluatorClient | None:
        """The connection, None while there is none."""
        return self.link.client

    @property
    def awaited(self) -> bool:
        """Whether an answer is on its way."""
        return bool(self._requests.sent)

    @property
    def stranded(self) -> bool:
        """Whether batches wait for an evaluator to come up."""
        return self._requests.client is None and any(self._unsent.values())

    def network(self, key: NetworkKey) -> NetworkInfo | None:
        """The network of that name, loaded if need be; None while there is no evaluator.

        Raises NoEvaluatorError if there is none to hope for, or it cannot serve the network.
        """
        self.link.wait(0.0)
        before = self._requests.client
        client = self._requests.connect()
        if client is None:
            return None
        if client is not before:
            self._networks.clear()
            client.interrupt_by(self._interrupt)
        network = self._networks.get(key)
        if network is None:
            own = key == self.link.settings.network
            try:
                network = client.network if own else served_network(client, key)
            except (EvaluatorLost, Draining) as error:
                self._requests.lost(str(error), refused=isinstance(error, Draining))
                return None
            except EvaluatorError as error:
                raise NoEvaluatorError(f"the evaluator cannot serve {key[0]!r}: {error}") from None
            self._networks[key] = network
        return network

    def add(self, pipeline: SharedPipeline[S], batch: Batch) -> None:
        """Have a batch sent with the next `flush`. It must stay as it is until it is answered."""
        self._unsent.setdefault(pipeline.network, []).append(_Part(pipeline, batch, batch.size))
        self._added += batch.size

    @property
    def has_request(self) -> bool:
        """Whether a request's worth of positions has been added since the last `flush`."""
        return self._added >= WORTH_SENDING

    def flush(self) -> set[S]:
        """Send what the searches have collected, unless the evaluator is at work and more may join it.

        Returns those whose batches cannot be sent; their pipelines have a `failure`.
        """
        self._added = 0
        failed: set[S] = set()
        for key, unsent in self._unsent.items():
            if not unsent:
                continue
            try:
                network = self.network(key)
            except NoEvaluatorError as error:
                failed |= _fail(unsent, error)
                unsent.clear()
                continue
            client = self._requests.client
            if network is not None and client is not None:
                failed |= self._send(client, network, key)
        return failed

    def _send(self, client: EvaluatorClient, network: NetworkInfo, key: NetworkKey) -> set[S]:
        """Send what waits for a network in requests of a good size, the last one only if it is not better to
        wait for more."""
        parts = [part for part in self._unsent[key] if part.wanted]
        stale = [part for part in parts if part.pipeline.identity != network.identity]
        failed = _fail(stale, PipelineError("the evaluator's network is another one now"))
        if stale:
            parts = [part for part in parts if part not in stale]
        self._unsent[key] = parts
        waiting = sum(part.size for part in parts)
        under_way = sum(request.size for request in self._requests.sent if request.network == key)
        quarter = (waiting + under_way) // (ENOUGH_REQUESTS + 1)
        most = max(1, min(max(network.recommended_batch, quarter), client.max_batch))
        while parts and (waiting >= most or not had_better_wait(waiting, under_way, most)):
            request, batch = _joined(key, parts, most)
            try:
                if not self._requests.send(batch, request, network=network.name):
                    break
                under_way += request.size
            except PipelineError as error:
                failed |= _fail(request.parts, error)
            waiting -= request.size
            del parts[: len(request.parts)]
        return failed

    def receive(self, timeout_ms: float | None) -> set[S]:
        """Hand out the answers that are there, waiting for the first one (None: as long as it takes); returns
        whose they were."""
        served: set[S] = set()
        while (answer := self._requests.receive(0.0 if served else timeout_ms)) is not None:
            request, completed = answer
            if request is None:
                continue
            if completed.evaluation is not None:
                self._count(completed, len(completed.evaluation))
                served |= request.hand_out(completed.evaluation)
            else:
                served |= _fail(request.parts, refusal(completed.error))
        return served

    def _count(self, completed: Completed, positions: int) -> None:
        if self.first_sent is None:
            self.first_sent = monotonic() - (completed.queue_ms + completed.compute_ms) / 1000
        self.evaluations += positions
        self.device_batches += positions / max(1, completed.batch_rode)

    def _send_again(self, request: _JointRequest[S]) -> None:
        self._unsent.setdefault(request.network, []).extend(request.parts)


def had_better_wait(waiting: int, under_way: int, full: int) -> bool:
    """Whether positions, less than a full request, had better wait for more while others are under way.

    Half of all there are never wait: the other half keeps the device busy meanwhile.
    """
    if under_way >= ENOUGH_REQUESTS * full:
        return True
    return under_way > 0 and waiting < min(full, WORTH_SENDING, (waiting + under_way) // 2)


def _joined(key: NetworkKey, parts: Sequence[_Part[S]], most: int) -> tuple[_JointRequest[S], PositionBatch]:
    """The first parts, at least one, and as many more as make at most `most` positions, as one request."""
    size, end = parts[0].size, 1
    while end < len(parts) and size + parts[end].size <= most:
        size, end = size + parts[end].size, end + 1
    joined = parts[:end]
    batches = [position_batch(part.batch) for part in joined]
    shapes = [(part.size, len(batch.moves)) for part, batch in zip(joined, batches, strict=True)]
    return _JointRequest(key, joined, shapes, size), PositionBatch.concatenate(batches)


def _fail(parts: Sequence[_Part[S]], error: PipelineError | NoEvaluatorError) -> set[S]:
    """End the searches that still want these parts; returns them."""
    pipelines = {part.pipeline for part in parts if part.wanted}
    for pipeline in pipelines:
        pipeline.failure = error
    return {pipeline.search for pipeline in pipelines}

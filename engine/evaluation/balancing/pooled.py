# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluators shared by many searches, whose batches are joined into few requests.

A request costs both processes about 150 µs of CPU time, however few positions it has. On a CPU backend the
network loses that time. So the pool joins the batches of one round into requests of the recommended size, or
larger if there are many.

Each search submits its batches to its own PooledPipeline. PooledEvaluator.flush joins and sends them, and
PooledEvaluator.receive splits the answers. Both return the searches that can continue. S is the type of a
search, which the owner of the evaluator chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from engine._core import Batch, Tree
from engine.evaluation.balancing.routing import WORTH_SENDING, Offer, best_offer, had_better_wait
from engine.evaluation.balancing.upstream import Agreement, Upstream
from engine.evaluation.connection.link import EvaluatorLink
from engine.evaluation.connection.process import EvaluatorSettings, NetworkKey
from engine.evaluation.encoding import position_batch
from engine.evaluation.errors import (
    EvaluatorRefusalError,
    NetworkChangedError,
    NoEvaluatorError,
    PipelineError,
)
from engine.evaluation.late_results import apply_evaluation, cache_evaluation
from engine.evaluation.pipeline import SpareBatches
from engine.evaluation.requests import refusal
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.settings.spec import SettingsError

if TYPE_CHECKING:
    from engine.evaluation.bursts import BurstEnd, BurstLimits
    from protocol.client import Completed, EvaluatorClient
    from protocol.messages import NetworkInfo, Priority

S = TypeVar("S")


class Sender(Protocol[S]):
    """A sender of batches through a PooledEvaluator. Attributes and methods: see PooledPipeline."""

    search: S
    network: NetworkKey
    identity: str
    failure: PipelineError | NoEvaluatorError | NetworkChangedError | None

    def waits_for(self, batch: Any) -> bool: ...
    def apply(self, batch: Any, evaluation: EvaluationBatch) -> bool: ...


class PooledPipeline(SpareBatches, Generic[S]):
    """The Pipeline of one search in a pool.

    search: the owner of the batches. failure: why the evaluator rejected them. The search then ends, or
    restarts after a NetworkChangedError.
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
        """identity: of the network that evaluated the tree. alone: no other search sends batches, so none
        waits to be joined, and the device computes one while the search collects the next."""
        super().__init__(capacity)
        self.evaluations = 0
        self.batches = 0
        self.search = search
        self.network = network
        self.identity = identity
        self.failure: PipelineError | NoEvaluatorError | NetworkChangedError | None = None
        self._tree = tree
        self._evaluator = evaluator
        self._alone = alone
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
        if self._alone:
            self._evaluator.flush(may_wait=False)

    def poll(self, timeout_ms: float) -> bool:
        return False  # The pool waits for all searches at once.

    def burst(self, limits: BurstLimits) -> BurstEnd | None:
        return None

    def abandon(self) -> None:
        # The arrays may still be in transmission, so these batches are not reused.
        for batch in self._on_their_way:
            self._tree.abandon(batch)
        self._abandoned += self._on_their_way
        self._on_their_way.clear()

    def waits_for(self, batch: Batch) -> bool:
        """Return True if the search still waits for a batch."""
        return batch in self._on_their_way

    def apply(self, batch: Batch, evaluation: EvaluationBatch) -> bool:
        """Apply the evaluations of a batch; return False if the search no longer waits for it. Then they go
        to the cache, for the next search."""
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
    """A search's batch that is in a request, or waits for one."""

    pipeline: Sender[S]
    batch: Batch | PositionBatch
    size: int

    @property
    def wanted(self) -> bool:
        return self.pipeline.waits_for(self.batch)


@dataclass(slots=True, eq=False)
class _JointRequest(Generic[S]):
    """A request with the batches of several searches. shapes: positions and moves of each."""

    network: NetworkKey
    parts: Sequence[_Part[S]]
    shapes: Sequence[tuple[int, int]]
    size: int

    def hand_out(self, evaluation: EvaluationBatch) -> set[S]:
        """Apply an answer's parts to the searches that still wait for them, and return these searches."""
        served: set[S] = set()
        for part, own in zip(self.parts, evaluation.split(self.shapes), strict=True):
            if part.pipeline.apply(part.batch, own):
                served.add(part.pipeline.search)
        return served


class PooledEvaluator(Generic[S]):
    """The evaluators of a pool, given by address or embedded, and the batches of the searches that use them.

    Each request goes to the evaluator with the earliest expected answer. If one is lost, its unanswered
    requests go to the others. Only the pool's thread may use it, except `links`, `connections` and `close`.

    first_sent: monotonic seconds. evaluations: positions answered. device_batches: device batches answered,
    where a request counts as its share of one. searches: finished ones, counted by the pool.
    """

    def __init__(
        self, settings: EvaluatorSettings, log: Callable[[str], None], priority: Priority, interrupt: int
    ) -> None:
        """interrupt: file descriptor; `receive` returns when it becomes readable."""
        self.log = log
        self.first_sent: float | None = None
        self.evaluations = 0
        self.searches = 0
        self.device_batches = 0.0
        self._unsent: dict[NetworkKey, list[_Part[S]]] = {}
        self._added = 0
        self._agreement = agreement = Agreement()
        each = [settings]
        with suppress(SettingsError):  # The link reports the error.
            each = [replace(settings, address=address) for address in settings.addresses] or each
        self.upstreams: tuple[Upstream[_JointRequest[S]], ...] = tuple(
            Upstream(one, log, priority, interrupt, self._send_again, agreement, alone=len(each) == 1)
            for one in each
        )

    @property
    def links(self) -> list[EvaluatorLink]:
        """The link to each evaluator."""
        return [upstream.link for upstream in self.upstreams]

    @property
    def awaited(self) -> bool:
        """True if a request is unanswered."""
        return any(upstream.awaited for upstream in self.upstreams)

    @property
    def awaited_clients(self) -> list[EvaluatorClient]:
        """The connections with unanswered requests."""
        return [
            upstream.client for upstream in self.upstreams if upstream.awaited and upstream.client is not None
        ]

    @property
    def stranded(self) -> bool:
        """True if batches wait for an evaluator to become available."""
        return all(upstream.client is None for upstream in self.upstreams) and any(self._unsent.values())

    def connections(self, timeout: float) -> list[EvaluatorClient]:
        """Return the connections to available evaluators; empty if none is available in `timeout` seconds.

        Waits for each evaluator. Thread-safe. Raises NoEvaluatorError if all have failed."""
        clients: list[EvaluatorClient] = []
        errors: list[NoEvaluatorError] = []
        for link in self.links:
            try:
                client = link.wait(timeout)
            except NoEvaluatorError as error:
                errors.append(error)
            else:
                clients += [] if client is None else [client]
        if len(errors) == len(self.upstreams):
            raise _together(errors)
        return clients

    def close(self) -> None:
        """Disconnect, and stop an embedded evaluator."""
        for link in self.links:
            link.close()

    def offers(self, key: NetworkKey) -> list[Offer[_JointRequest[S]]]:
        """Return the evaluators that serve a network, loaded if necessary; empty while there is none.

        Raises NoEvaluatorError if all have failed, or none can serve the network.
        """
        offers = self._offered(key)
        if not offers and any(upstream.has_moved(key) for upstream in self.upstreams):
            self._agreement.networks.pop(key, None)
            for upstream in self.upstreams:
                upstream.look_again(key)
            offers = self._offered(key)
        failures = [upstream.failure for upstream in self.upstreams if upstream.failure is not None]
        if not offers and len(failures) == len(self.upstreams):
            raise _together(failures)
        return offers

    def _offered(self, key: NetworkKey) -> list[Offer[_JointRequest[S]]]:
        return [
            Offer(upstream, network, upstream.client.max_batch)
            for upstream in self.upstreams
            if (network := upstream.network(key)) is not None and upstream.client is not None
        ]

    def networks(self) -> tuple[NetworkInfo, ...] | None:
        """Return the current networks of the first available evaluator; None while there is none."""
        return next(
            (found for upstream in self.upstreams if (found := upstream.networks()) is not None), None
        )

    def add(self, pipeline: Sender[S], batch: Batch | PositionBatch) -> None:
        """Queue a batch for the next `flush`. The caller must not change it until it is answered."""
        self._unsent.setdefault(pipeline.network, []).append(_Part(pipeline, batch, len(batch)))
        self._added += len(batch)

    @property
    def has_request(self) -> bool:
        """True if enough positions for a request were added since the last `flush`."""
        return self._added >= WORTH_SENDING

    def flush(self, *, may_wait: bool = True) -> set[S]:
        """Send the queued batches, unless (`may_wait`) the evaluators are busy and more may join them.

        Returns the searches whose batches cannot be sent; their pipelines have a `failure`.
        """
        self._added = 0
        failed: set[S] = set()
        for key, unsent in self._unsent.items():
            if not unsent:
                continue
            try:
                offers = self.offers(key)
            except NoEvaluatorError as error:
                failed |= _fail(unsent, error)
                unsent.clear()
                continue
            if offers:
                failed |= self._send(offers, key, may_wait=may_wait)
        return failed

    def _send(self, offers: list[Offer[_JointRequest[S]]], key: NetworkKey, *, may_wait: bool) -> set[S]:
        """Send the batches that wait for a network in requests of a good size. may_wait: the last one
        may wait for more."""
        parts = [part for part in self._unsent[key] if part.wanted]
        stale = [part for part in parts if part.pipeline.identity != offers[0].network.identity]
        failed = _fail(stale, NetworkChangedError("the evaluator has another network now"))
        if stale:
            parts = [part for part in parts if part not in stale]
        self._unsent[key] = parts
        waiting = sum(part.size for part in parts)
        while parts and offers:
            offer, most = best_offer(offers, key, waiting, parts[0].size)
            if may_wait and waiting < most and had_better_wait(waiting, offer.upstream.in_flight(key), most):
                break
            request, batch = _joined(key, parts, most)
            try:
                if not offer.upstream.send(batch, request):
                    offers.remove(offer)
                    continue
            except PipelineError as error:
                failed |= _fail(request.parts, error)
            waiting -= request.size
            del parts[: len(request.parts)]
        return failed

    def receive(self, timeout_ms: float | None) -> set[S]:
        """Apply all answers received, and return their searches. With one evaluator, wait for the first
        answer (None: indefinitely); with several, the caller waits in `protocol.client.wait_for_any`."""
        served: set[S] = set()
        for upstream in self.upstreams:
            if upstream.awaited:
                self._receive(upstream, timeout_ms if len(self.upstreams) == 1 else 0.0, served)
        return served

    def _receive(
        self, upstream: Upstream[_JointRequest[S]], timeout_ms: float | None, served: set[S]
    ) -> None:
        while (answer := upstream.receive(0.0 if served else timeout_ms)) is not None:
            request, completed = answer
            if request is None:
                continue
            if completed.evaluation is not None:
                self._count(completed, len(completed.evaluation))
                served |= request.hand_out(completed.evaluation)
            else:
                served |= _fail(request.parts, refusal(completed.error))

    def _count(self, completed: Completed, positions: int) -> None:
        if self.first_sent is None:
            self.first_sent = monotonic() - (completed.queue_ms + completed.compute_ms) / 1000
        self.evaluations += positions
        self.device_batches += positions / max(1, completed.batch_rode)

    def _send_again(self, request: _JointRequest[S]) -> None:
        self._unsent.setdefault(request.network, []).extend(request.parts)


def _together(errors: Sequence[NoEvaluatorError]) -> NoEvaluatorError:
    """Return the error that no evaluator is available."""
    if len(errors) == 1:
        return errors[0]
    refused = all(isinstance(error, EvaluatorRefusalError) for error in errors)
    return (EvaluatorRefusalError if refused else NoEvaluatorError)("; ".join(map(str, errors)))


def _joined(key: NetworkKey, parts: Sequence[_Part[S]], most: int) -> tuple[_JointRequest[S], PositionBatch]:
    """Join the first parts, at least one and at most `most` positions, to one request."""
    size, end = parts[0].size, 1
    while end < len(parts) and size + parts[end].size <= most:
        size, end = size + parts[end].size, end + 1
    joined = parts[:end]
    batches = [position_batch(part.batch) for part in joined]
    shapes = [(part.size, len(batch.moves)) for part, batch in zip(joined, batches, strict=True)]
    return _JointRequest(key, joined, shapes, size), PositionBatch.concatenate(batches)


def _fail(parts: Sequence[_Part[S]], error: PipelineError | NoEvaluatorError | NetworkChangedError) -> set[S]:
    """Record the error in the searches that still wait for these parts, and return them."""
    pipelines = {part.pipeline for part in parts if part.wanted}
    for pipeline in pipelines:
        pipeline.failure = error
    return {pipeline.search for pipeline in pipelines}

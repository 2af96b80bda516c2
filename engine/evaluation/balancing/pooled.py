# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluators of one or many searches, whose batches are joined into few requests.

A request costs both processes about 150 µs of CPU time, however few positions it has. On a CPU backend the
network loses that time. So the pool joins the batches of one round into requests of the recommended size, or
larger if there are many.

Each search submits its batches to its own PooledPipeline. PooledEvaluator.flush joins and sends them, and
PooledEvaluator.receive splits the answers. Both return the searches that can continue. S is the type of a
search, which the owner of the evaluator chooses.

The batches of a lone search are not joined, so the core can exchange them without the interpreter
(PooledPipeline.burst). Evaluations that arrive after the end of their search go to the cache of its tree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from engine._core import Batch, Tree
from engine.evaluation.balancing.routing import Offer, best_offer, had_better_wait
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
from engine.evaluation.requests import refusal
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.settings.spec import SettingsError

if sys.platform == "linux":
    from engine._core import Bursts

if TYPE_CHECKING:
    from engine.evaluation.bursts import BurstEnd, BurstLimits
    from protocol._core import Stream
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo, Priority

S = TypeVar("S")


class Sender(Protocol[S]):
    """A sender of batches through a PooledEvaluator. Attributes and methods: see PooledPipeline."""

    search: S
    network: NetworkKey
    identity: str
    failure: PipelineError | NoEvaluatorError | NetworkChangedError | None
    target_ms: float | None

    def waits_for(self, batch: Any) -> bool: ...
    def of_tree(self, tree: Tree) -> bool: ...
    def apply(self, batch: Any, evaluation: EvaluationBatch) -> bool: ...


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
        return self._evaluator.burst(self, limits)

    def exchange(
        self,
        client: EvaluatorClient,
        stream: Stream,
        network: NetworkInfo,
        priority: Priority,
        sent: dict[int, Batch],
        limits: BurstLimits,
    ) -> BurstEnd:
        """Run a burst with the evaluator's connection. Return why it ended. sent: the batches in flight by
        request number, updated in place."""
        bursts = self._bursts
        if bursts is None or self._bursts_target_ms != self.target_ms:
            bursts = self._bursts = Bursts(priority, self.target_ms)
            self._bursts_target_ms = self.target_ms
        while len(sent) + len(self._free) < limits.rule.in_flight:
            self._free.append(Batch(self._capacity))
        before, now = set(sent), perf_counter()
        try:
            return bursts.run(
                self._tree,
                stream,
                limits.rule,
                network=network.name,
                content_hash=network.content_hash,
                next_id=client.next_id,
                sent=sent,
                spare=self._free,
                until=limits.until - now,
                patience=limits.patience - now,
                hard=None if limits.hard is None else limits.hard - now,
                nodes=limits.nodes,
                nodes_as_playouts=limits.nodes_as_playouts,
                look_at=limits.look_at,
                depth=limits.depth,
                interrupt=limits.interrupt,
            )
        finally:  # Ctrl-C raises in the main thread as soon as the core returns.
            self.waiting[:] = sent.values()
            self.in_flight = len(sent)
            self.evaluations += bursts.evaluations
            self.batches += bursts.batches
            client.exchanged(
                before.difference(sent),
                {identity: (batch.size, batch.move_count, network) for identity, batch in sent.items()},
                bursts.next_id,
                heard=bursts.answers > 0,
            )

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


@dataclass(slots=True, eq=False)
class _Part(Generic[S]):
    """A search's batch that is in a request, or waits for one."""

    pipeline: Sender[S]
    batch: Batch | PositionBatch
    size: int

    @property
    def wanted(self) -> bool:
        return self.pipeline.waits_for(self.batch)

    def was_abandoned(self, tree: Tree) -> bool:
        """Return True if an earlier search of this tree waited for it."""
        return not self.wanted and self.pipeline.of_tree(tree)


@dataclass(slots=True, eq=False)
class _JointRequest(Generic[S]):
    """A request with the batches of several searches. shapes: positions and moves of each. target_ms: the
    shortest latency that a part asks for."""

    network: NetworkKey
    parts: Sequence[_Part[S]]
    shapes: Sequence[tuple[int, int]]
    size: int
    target_ms: float | None

    def distribute(self, evaluation: EvaluationBatch) -> set[S]:
        """Apply an answer's parts to the searches that still wait for them, and return these searches."""
        served: set[S] = set()
        for part, own in zip(self.parts, evaluation.split(self.shapes), strict=True):
            if part.pipeline.apply(part.batch, own):
                served.add(part.pipeline.search)
        return served


class PooledEvaluator(Generic[S]):
    """The evaluators of a pool, given by address or embedded, and the batches of the searches that use them.

    Each request goes to the evaluator with the earliest expected answer. If one is lost, its unanswered
    requests go to the others. Only the searches' thread may use it, except `links`, `connections`, `close`.

    first_sent: monotonic seconds. evaluations: positions answered. device_batches: device batches answered,
    where a request counts as its share of one. searches: finished ones, counted by the pool.
    """

    def __init__(
        self,
        settings: EvaluatorSettings,
        log: Callable[[str], None],
        priority: Priority,
        interrupt: int | None = None,
        *,
        spread: bool = True,
        fallback: bool = False,
    ) -> None:
        """interrupt: file descriptor; `receive` returns when it becomes readable. spread: use all addresses
        at once; otherwise the first one that is ready. fallback: see EvaluatorLink."""
        self.log = log
        self._priority: Priority = priority
        self.first_sent: float | None = None
        self.evaluations = 0
        self.searches = 0
        self.device_batches = 0.0
        self._unsent: dict[NetworkKey, list[_Part[S]]] = {}
        self.added = 0
        """Positions queued since the last `flush`."""
        self._agreement = agreement = Agreement()
        each = [settings]
        with suppress(SettingsError):  # The link reports the error.
            if spread:
                each = [replace(settings, address=address) for address in settings.addresses] or each
        alone = len(each) == 1
        self.upstreams: tuple[Upstream[_JointRequest[S]], ...] = tuple(
            Upstream(
                one, log, priority, interrupt, self._send_again, agreement, alone=alone, fallback=fallback
            )
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

    def start(self) -> None:
        """Start to connect to all evaluators, or to start an embedded one, and return at once."""
        for link in self.links:
            link.start()

    def retry(self) -> None:
        """Try again to reach the only evaluator, for a search that begins. The failed ones of several are
        retried at intervals."""
        if len(self.upstreams) == 1:
            self.start()

    def close(self) -> None:
        """Disconnect, and stop an embedded evaluator."""
        for link in self.links:
            link.close()

    def offers(self, key: NetworkKey, *, look: bool = True) -> list[Offer[_JointRequest[S]]]:
        """Return the evaluators that serve a network, loaded if necessary; empty while there is none.

        look: first read the notices of changes. Raises NoEvaluatorError if all have failed, or none can serve
        the network.
        """
        offers = self._offered(key, look=look)
        if offers:
            return offers
        if any(upstream.has_moved(key) for upstream in self.upstreams):
            self._agreement.networks.pop(key, None)
            for upstream in self.upstreams:
                upstream.retry_network(key)
            offers = self._offered(key, look=look)
        failures = [upstream.failure for upstream in self.upstreams if upstream.failure is not None]
        if not offers and len(failures) == len(self.upstreams):
            raise _together(failures)
        return offers

    def _offered(self, key: NetworkKey, *, look: bool) -> list[Offer[_JointRequest[S]]]:
        return [
            Offer(upstream, served.info, served.identity, upstream.client.max_batch)
            for upstream in self.upstreams
            if (served := upstream.network(key, look=look)) is not None and upstream.client is not None
        ]

    def networks(self) -> tuple[NetworkInfo, ...] | None:
        """Return the current networks of the first available evaluator; None while there is none."""
        return next(
            (found for upstream in self.upstreams if (found := upstream.networks()) is not None), None
        )

    def add(self, pipeline: Sender[S], batch: Batch | PositionBatch) -> None:
        """Queue a batch for the next `flush`. The caller must not change it until it is answered."""
        self._unsent.setdefault(pipeline.network, []).append(_Part(pipeline, batch, len(batch)))
        self.added += len(batch)

    def send(self, pipeline: PooledPipeline[S], batch: Batch) -> bool:
        """Send the batch of a lone search by itself; return False if it must be queued instead.

        The caller must not change it until it is answered. A refusal is the pipeline's `failure`.
        """
        if len(self.upstreams) > 1 or self.added:
            return False
        upstream = self.upstreams[0]
        served = upstream.current(pipeline.network)
        if served is None or served.identity != pipeline.identity:
            return False
        try:
            return upstream.send(position_batch(batch), _request_of(pipeline, batch))
        except PipelineError as error:
            pipeline.failure = error
            return True

    def flush(self, *, may_wait: bool = True) -> set[S]:
        """Send the queued batches, unless (`may_wait`) the evaluators are busy and more may join them.

        Returns the searches whose batches cannot be sent; their pipelines have a `failure`.
        """
        self.added = 0
        failed: set[S] = set()
        for key, unsent in self._unsent.items():
            if not unsent:
                continue
            try:
                offers = self.offers(key, look=False)
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
        failed: set[S] = set()
        stale = [part for part in parts if part.pipeline.identity != offers[0].identity]
        if stale:
            failed = _fail(stale, NetworkChangedError("the evaluator has another network now"))
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

    def cancel_abandoned(self, tree: Tree) -> None:
        """Cancel what earlier searches of a tree asked for and the evaluators have not begun, because another
        search needs them now."""
        for upstream in self.upstreams:
            upstream.cancel(lambda request: all(part.was_abandoned(tree) for part in request.parts))

    def burst(self, pipeline: PooledPipeline[S], limits: BurstLimits) -> BurstEnd | None:
        """Run a burst of a lone search; see PooledPipeline."""
        if len(self.upstreams) > 1 or self.added or sys.platform != "linux":
            return None
        requests = self.upstreams[0].requests
        client, served = requests.client, self.upstreams[0].current(pipeline.network)
        if client is None or served is None or served.identity != pipeline.identity:
            return None
        sent: dict[int, Batch] = {}
        for identity, request in requests.sent.items():
            part = request.parts[0]
            if part.pipeline is pipeline and len(request.parts) == 1 and part.batch in pipeline.waiting:
                sent[identity] = part.batch
        stream = client.stream
        if stream is None or len(sent) != pipeline.in_flight:
            return None
        before, evaluations, batches = set(sent), pipeline.evaluations, pipeline.batches
        try:
            return pipeline.exchange(client, stream, served.info, self._priority, sent, limits)
        finally:
            positions = pipeline.evaluations - evaluations
            for identity in before.difference(sent):
                positions += requests.sent.pop(identity).size
            for identity, batch in sent.items():
                if identity not in before:
                    positions -= batch.size
                    requests.sent[identity] = _request_of(pipeline, batch)
            self._count(positions, len(before) + pipeline.batches - batches - len(sent))

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
                positions = len(completed.evaluation)
                seconds = (completed.queue_ms + completed.compute_ms) / 1000
                self._count(positions, positions / max(1, completed.batch_rode), seconds)
                served |= request.distribute(completed.evaluation)
            else:
                served |= _fail(request.parts, refusal(completed.error))

    def _count(self, positions: int, device_batches: float, seconds: float = 0.0) -> None:
        """Count answers. seconds: since the first of them was sent."""
        if self.first_sent is None:
            self.first_sent = monotonic() - seconds
        self.evaluations += positions
        self.device_batches += device_batches

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
    targets = [part.pipeline.target_ms for part in joined if part.pipeline.target_ms is not None]
    request = _JointRequest(key, joined, shapes, size, min(targets, default=None))
    return request, PositionBatch.concatenate(batches)


def _request_of(pipeline: PooledPipeline[S], batch: Batch) -> _JointRequest[S]:
    """Return the request with one batch of a search."""
    part = _Part(pipeline, batch, batch.size)
    shapes = [(batch.size, batch.move_count)]
    return _JointRequest(pipeline.network, [part], shapes, batch.size, pipeline.target_ms)


def _fail(parts: Sequence[_Part[S]], error: PipelineError | NoEvaluatorError | NetworkChangedError) -> set[S]:
    """Record the error in the searches that still wait for these parts, and return them."""
    pipelines = {part.pipeline for part in parts if part.wanted}
    for pipeline in pipelines:
        pipeline.failure = error
    return {pipeline.search for pipeline in pipelines}

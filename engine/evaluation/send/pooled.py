# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluators of one or many searches, whose batches are joined into few requests.

A request costs both processes about 150 µs of CPU time, however few positions it has. On a CPU backend the
network loses that time. So the pool joins the batches of one round into requests of the recommended size, or
larger if there are many.

Each search submits its batches to its own PooledPipeline. PooledEvaluator.flush joins and sends them, and
PooledEvaluator.receive splits the answers. Both return the searches that can continue. S is the type of a
search, which the owner of the evaluator chooses.

The batches of a lone search are not joined, so the core can exchange them without the interpreter
(pipeline.py). Evaluations that arrive after the end of their search go to the cache of its tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Generic

from engine._core import Batch, Tree
from engine.evaluation.errors import (
    EvaluatorRefusalError,
    NetworkChangedError,
    NoEvaluatorError,
    PipelineError,
)
from engine.evaluation.link.process import EvaluatorSettings, NetworkKey
from engine.evaluation.link.requests import refusal
from engine.evaluation.spread.joint_request import JointRequest, Part, S, Sender, fail, joined
from engine.evaluation.spread.routing import best_offer, had_better_wait
from engine.evaluation.spread.upstream import Offer, Upstream
from protocol.batch import PositionBatch
from protocol.common.settings.spec import SettingsError

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import NetworkInfo, Priority


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
        self.priority: Priority = priority
        self.first_sent: float | None = None
        self.evaluations = 0
        self.searches = 0
        self.device_batches = 0.0
        self._unsent: dict[NetworkKey, list[Part[S]]] = {}
        self.added = 0
        """Positions queued since the last `flush`."""
        self._agreed: dict[NetworkKey, NetworkInfo] = {}
        each = [settings]
        with suppress(SettingsError):  # The link reports the error.
            if spread:
                each = [replace(settings, address=address) for address in settings.addresses] or each
        alone = len(each) == 1
        self.upstreams: tuple[Upstream, ...] = tuple(
            Upstream(
                one, log, priority, interrupt, self._send_again, self._agreed, alone=alone, fallback=fallback
            )
            for one in each
        )
        self.links = [upstream.link for upstream in self.upstreams]

    @property
    def awaited_clients(self) -> list[EvaluatorClient]:
        """The connections with unanswered requests."""
        return [each.client for each in self.upstreams if each.sent and each.client is not None]

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

    def offers(self, key: NetworkKey, *, look: bool = True) -> list[Offer]:
        """Return the evaluators that serve a network, loaded if necessary; empty while there is none.

        look: first read the notices of changes. Raises NoEvaluatorError if all have failed, or none can serve
        the network.
        """
        offers = self._offered(key, look=look)
        if offers:
            return offers
        if any(upstream.has_moved(key) for upstream in self.upstreams):
            self._agreed.pop(key, None)
            for upstream in self.upstreams:
                upstream.retry_network(key)
            offers = self._offered(key, look=look)
        failures = [upstream.failure for upstream in self.upstreams if upstream.failure is not None]
        if not offers and len(failures) == len(self.upstreams):
            raise _together(failures)
        return offers

    def _offered(self, key: NetworkKey, *, look: bool) -> list[Offer]:
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
        self._unsent.setdefault(pipeline.network, []).append(Part(pipeline, batch, len(batch)))
        self.added += len(batch)

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
                failed |= fail(unsent, error)
                unsent.clear()
                continue
            if offers:
                failed |= self._send(offers, key, may_wait=may_wait)
        return failed

    def _send(self, offers: list[Offer], key: NetworkKey, *, may_wait: bool) -> set[S]:
        """Send the batches that wait for a network in requests of a good size. may_wait: the last one
        may wait for more."""
        parts = [part for part in self._unsent[key] if part.wanted]
        failed: set[S] = set()
        stale = [part for part in parts if part.pipeline.identity != offers[0].identity]
        if stale:
            failed = fail(stale, NetworkChangedError("the evaluator has another network now"))
            parts = [part for part in parts if part not in stale]
        self._unsent[key] = parts
        waiting = sum(part.size for part in parts)
        while parts and offers:
            offer, most = best_offer(offers, key, waiting, parts[0].size)
            if may_wait and waiting < most and had_better_wait(waiting, offer.upstream.in_flight(key), most):
                break
            request, batch = joined(key, parts, most)
            try:
                if not offer.upstream.submit(batch, request):
                    offers.remove(offer)
                    continue
            except PipelineError as error:
                failed |= fail(request.parts, error)
            waiting -= request.size
            del parts[: len(request.parts)]
        return failed

    def cancel_abandoned(self, tree: Tree) -> None:
        """Cancel what earlier searches of a tree asked for and the evaluators have not begun, because another
        search needs them now."""
        for upstream in self.upstreams:
            upstream.cancel(lambda request: all(part.was_abandoned(tree) for part in request.parts))

    def receive(self, timeout_ms: float | None) -> set[S]:
        """Apply all answers received, and return their searches. With one evaluator, wait for the first
        answer (None: indefinitely); with several, the caller waits in `protocol.client.wait_for_any`."""
        served: set[S] = set()
        for upstream in self.upstreams:
            if upstream.sent:
                self._receive(upstream, timeout_ms if len(self.upstreams) == 1 else 0.0, served)
        return served

    def _receive(self, upstream: Upstream, timeout_ms: float | None, served: set[S]) -> None:
        while (answer := upstream.receive(0.0 if served else timeout_ms)) is not None:
            request, completed = answer
            if request is None:
                continue
            if completed.evaluation is not None:
                positions = len(completed.evaluation)
                seconds = (completed.queue_ms + completed.compute_ms) / 1000
                self.count(positions, positions / max(1, completed.batch_rode), seconds)
                served |= request.distribute(completed.evaluation)
            else:
                served |= fail(request.parts, refusal(completed.error))

    def count(self, positions: int, device_batches: float, seconds: float = 0.0) -> None:
        """Count answers. seconds: since the first of them was sent."""
        if self.first_sent is None:
            self.first_sent = perf_counter() - seconds
        self.evaluations += positions
        self.device_batches += device_batches

    def _send_again(self, request: JointRequest[S]) -> None:
        self._unsent.setdefault(request.network, []).extend(request.parts)


def _together(errors: Sequence[NoEvaluatorError]) -> NoEvaluatorError:
    """Return the error that no evaluator is available."""
    if len(errors) == 1:
        return errors[0]
    refused = all(isinstance(error, EvaluatorRefusalError) for error in errors)
    return (EvaluatorRefusalError if refused else NoEvaluatorError)("; ".join(map(str, errors)))

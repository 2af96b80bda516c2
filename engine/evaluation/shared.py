"""One evaluator for many searches: their batches travel together, in few requests.

A request costs both processes some 150 µs of processor time, however few positions it carries, and on a CPU
backend that time is the network's. So what the searches have collected in one round of the pool goes into
requests of the size that the evaluator recommends, or larger where there are many positions.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING

from engine._core import Batch
from engine.evaluation.joint_request import Piece, SharedPipeline, hand_out, joined
from engine.evaluation.link import EvaluatorLink, EvaluatorSettings, NoEvaluatorError
from engine.evaluation.pipeline import PipelineError
from protocol.errors import (
    DeviceFailed,
    Draining,
    EvaluatorError,
    EvaluatorLost,
    EvaluatorTimeout,
    Overloaded,
    RemoteError,
)

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

OVERLOADED_SECONDS = 0.01
"""Pause when the evaluator's queue is full of others' work: there is nothing to wait on."""

LOAD_SECONDS = 600.0
"""How long an evaluator may take to load a further network."""

NetworkKey = tuple[str, str, str]
"""Weights, policy head and value head, as the options name them."""


def network_key(settings: EvaluatorSettings) -> NetworkKey:
    return settings.weights, settings.policy_head, settings.value_head


class SharedEvaluator:
    """A link, its client, and the searches' batches. Used by the pool's thread alone, but for `link`.

    first_sent (monotonic seconds), evaluations, device_batches: what came back so far; a request counts as
    the share that it had in its device batch.
    """

    def __init__(
        self,
        settings: EvaluatorSettings,
        log: Callable[[str], None],
        priority: Priority,
        interrupt: int,
    ) -> None:
        """interrupt: a file descriptor; `receive` returns when it becomes readable."""
        self.log = log
        self._interrupt = interrupt
        self.link = EvaluatorLink(settings, log)
        self.link.start()
        self.first_sent: float | None = None
        self.evaluations = 0
        self.searches = 0
        self.device_batches = 0.0
        self._priority: Priority = priority
        self._own_network = network_key(settings)
        self._client: EvaluatorClient | None = None
        self._networks: dict[NetworkKey, NetworkInfo] = {}
        self._unsent: dict[NetworkKey, list[Piece]] = {}
        self._added = 0
        self._sent: dict[int, tuple[NetworkKey, list[Piece]]] = {}
        self._sent_positions: dict[NetworkKey, int] = {}

    @property
    def client(self) -> EvaluatorClient | None:
        """The connection, None while there is none."""
        return self.link.client

    @property
    def awaited(self) -> bool:
        """Whether an answer is on its way."""
        return bool(self._sent)

    @property
    def stranded(self) -> bool:
        """Whether batches wait for an evaluator to come up."""
        return self._client is None and any(self._unsent.values())

    def network(self, key: NetworkKey) -> NetworkInfo | None:
        """The network of that name, loaded if need be; None while there is no evaluator.

        Raises NoEvaluatorError if there is none to hope for, or it cannot serve the network.
        """
        client = self.link.wait(0.0)
        if client is None:
            return None
        if client is not self._client:
            self._client = client
            self._networks.clear()
            client.interrupt_by(self._interrupt)
        network = self._networks.get(key)
        if network is None:
            try:
                network = client.network if key == self._own_network else served_network(client, *key)
            except EvaluatorLost as error:
                self._lost(client, str(error))
                return None
            except EvaluatorError as error:
                raise NoEvaluatorError(f"the evaluator cannot serve {key[0]!r}: {error}") from None
            self._networks[key] = network
        return network

    def add(self, owner: SharedPipeline, batch: Batch) -> None:
        """Have a batch sent with the next `flush`. It must stay as it is until then."""
        self._unsent.setdefault(owner.network, []).append(Piece(owner, batch))
        self._added += batch.size

    @property
    def has_request(self) -> bool:
        """Whether a request's worth of positions has been added since the last `flush`."""
        return self._added >= WORTH_SENDING

    def flush(self) -> set[SharedPipeline]:
        """Send what the searches have collected, unless the evaluator is at work and more may join it.

        Returns those whose batches cannot be sent, with their `failure`.
        """
        self._added = 0
        failed: set[SharedPipeline] = set()
        for key, unsent in self._unsent.items():
            if not unsent:
                continue
            try:
                network = self.network(key)
            except NoEvaluatorError as error:
                failed |= _fail(unsent, error)
                unsent.clear()
                continue
            client = self._client
            if network is None or client is None or client is not self.link.client:
                continue
            failed |= self._send_all(client, network, key)
        return failed

    def _send_all(
        self, client: EvaluatorClient, network: NetworkInfo, key: NetworkKey
    ) -> set[SharedPipeline]:
        pieces = [piece for piece in self._unsent[key] if piece.owner.waits_for(piece.batch)]
        other = [piece for piece in pieces if piece.owner.content_hash != network.content_hash]
        failed = _fail(other, PipelineError("the evaluator's network is another one now"))
        pieces = [piece for piece in pieces if piece not in other] if other else pieces
        waiting = sum(piece.size for piece in pieces)
        quarter = (waiting + self._sent_positions.get(key, 0)) // (ENOUGH_REQUESTS + 1)
        most = max(1, min(max(network.recommended_batch, quarter), client.max_batch))
        start = 0
        while start < len(pieces):
            under_way = self._sent_positions.get(key, 0)
            if waiting < most and had_better_wait(waiting, under_way, most):
                break
            size, end = pieces[start].size, start + 1
            while end < len(pieces) and size + pieces[end].size <= most:
                size, end = size + pieces[end].size, end + 1
            request = pieces[start:end]
            try:
                identity = client.submit(joined(request), priority=self._priority, network=network.name)
            except EvaluatorLost as error:
                self._unsent[key] = pieces[start:]
                self._lost(client, str(error))
                return failed
            except RemoteError as error:
                failed |= _fail(request, PipelineError(f"the evaluator refuses the batch: {error}"))
            else:
                self._sent[identity] = key, request
                self._sent_positions[key] = under_way + size
            start, waiting = end, waiting - size
        self._unsent[key] = pieces[start:]
        return failed

    def receive(self, timeout_ms: float | None) -> set[SharedPipeline]:
        """Hand out the answers that are there, waiting for the first one (None: as long as it takes); returns
        whose they were."""
        served: set[SharedPipeline] = set()
        client = self._client
        if client is None or client is not self.link.client:
            return served
        while True:
            try:
                completed = client.receive(0.0 if served else timeout_ms)
            except EvaluatorLost as error:
                self._lost(client, str(error))
                return served
            if completed is None:
                return served
            key, pieces = self._sent.pop(completed.id, (None, []))
            if key is not None:
                self._sent_positions[key] -= sum(piece.size for piece in pieces)
            if completed.evaluation is not None:
                self._count(completed)
                served |= hand_out(completed.evaluation, pieces)
            elif key is not None:
                served |= self._refused(client, completed.error, key, pieces)

    def _count(self, completed: Completed) -> None:
        assert completed.evaluation is not None
        if self.first_sent is None:
            self.first_sent = monotonic() - (completed.queue_ms + completed.compute_ms) / 1000
        self.evaluations += len(completed.evaluation)
        self.device_batches += len(completed.evaluation) / max(1, completed.batch_rode)

    def _refused(
        self, client: EvaluatorClient, error: RemoteError | None, key: NetworkKey, pieces: list[Piece]
    ) -> set[SharedPipeline]:
        if isinstance(error, Overloaded | Draining | DeviceFailed | EvaluatorTimeout):
            self._unsent.setdefault(key, []).extend(pieces)
            if isinstance(error, Overloaded):
                sleep(OVERLOADED_SECONDS)
            else:
                self._lost(client, str(error))
            return set()
        return _fail(pieces, PipelineError(f"the evaluator refuses the batch: {error}"))

    def _lost(self, client: EvaluatorClient, reason: str) -> None:
        """What `client` has not answered is sent again when there is another one."""
        for key, pieces in self._sent.values():
            self._unsent.setdefault(key, []).extend(pieces)
        self._sent.clear()
        self._sent_positions.clear()
        self._client = None
        self.link.lost(client, reason)


def served_network(client: EvaluatorClient, weights: str, policy_head: str, value_head: str) -> NetworkInfo:
    """The network that options name so, loaded unless the evaluator serves one of that name or hash.

    Raises EvaluatorError.
    """
    from pathlib import Path

    for network in client.networks:
        if weights in (network.name, network.content_hash):
            return network
    path = str(Path(weights).expanduser().resolve()) if weights else ""
    return client.load(path, policy_head=policy_head, value_head=value_head, timeout=LOAD_SECONDS)


def had_better_wait(waiting: int, under_way: int, full: int) -> bool:
    """Whether positions, less than a full request, had better wait for more while others are under way.

    Half of all there are never wait: the other half keeps the device busy meanwhile.
    """
    if under_way >= ENOUGH_REQUESTS * full:
        return True
    return under_way > 0 and waiting < min(full, WORTH_SENDING, (waiting + under_way) // 2)


def _fail(pieces: list[Piece], error: PipelineError | NoEvaluatorError) -> set[SharedPipeline]:
    owners = {piece.owner for piece in pieces if piece.owner.waits_for(piece.batch)}
    for owner in owners:
        owner.failure = error
    return owners

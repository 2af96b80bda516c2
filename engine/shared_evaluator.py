"""One evaluator for many searches: their batches travel together, in few requests.

A request costs both processes some 150 µs of processor time, however few positions it carries, and on a CPU
backend that time is the network's. So what the searches have collected in one round of the pool goes into
requests of the size that the evaluator recommends, or larger where there are many positions.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine._core import Batch, Tree
from engine.evaluator_process import EvaluatorLink, EvaluatorSettings, NoEvaluatorError
from engine.pipeline import PipelineError
from protocol.batch import POSITION_DTYPE, PositionBatch
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

OVERLOADED_SECONDS = 0.01
"""Pause when the evaluator's queue is full of others' work: there is nothing to wait on."""

Floats = NDArray[np.float32]

NetworkKey = tuple[str, str, str]
"""Weights, policy head and value head, as the options name them."""


def network_key(settings: EvaluatorSettings) -> NetworkKey:
    return settings.weights, settings.policy_head, settings.value_head


class SharedPipeline:
    """The batches of one search among those of others: the Pipeline of a pool's searches.

    Answers come through SharedEvaluator.receive. failure: why the evaluator will not evaluate what this
    search sent; it is over then.
    """

    def __init__(
        self, tree: Tree, evaluator: SharedEvaluator, network: NetworkKey, content_hash: str, capacity: int
    ) -> None:
        """content_hash: of the network whose evaluations the tree holds."""
        self.evaluations = 0
        self.batches = 0
        self.network = network
        self.content_hash = content_hash
        self.failure: PipelineError | NoEvaluatorError | None = None
        self._tree = tree
        self._evaluator = evaluator
        self._capacity = capacity
        self._on_their_way: list[Batch] = []
        self._free: list[Batch] = []

    @property
    def in_flight(self) -> int:
        return len(self._on_their_way)

    @property
    def in_flight_positions(self) -> int:
        return sum(batch.size for batch in self._on_their_way)

    def take(self) -> Batch:
        return self._free.pop() if self._free else Batch(self._capacity)

    def give_back(self, batch: Batch) -> None:
        self._free.append(batch)

    def submit(self, batch: Batch) -> None:
        self.evaluations += batch.size
        self.batches += 1
        self._on_their_way.append(batch)
        self._evaluator.add(self, batch)

    def poll(self, timeout_ms: float) -> bool:
        return False  # The pool waits for all searches at once.

    def abandon(self) -> None:
        for batch in self._on_their_way:
            self._tree.cancel(batch)
        self._on_their_way.clear()

    def waits_for(self, batch: Batch) -> bool:
        """Whether a batch is still wanted."""
        return any(each is batch for each in self._on_their_way)

    def apply(self, batch: Batch, logits: Floats, wdl: Floats, moves_left: Floats) -> None:
        """Take the evaluations of a batch."""
        self._on_their_way.remove(batch)
        try:
            self._tree.apply(batch, logits, wdl, moves_left)
        except ValueError as error:
            self._tree.cancel(batch)
            self.failure = PipelineError(f"the evaluator sent what cannot be used: {error}")
            return
        self._free.append(batch)


class _Piece:
    """A batch of a search in a request, or on its way into one."""

    __slots__ = ("batch", "moves", "owner", "size")

    def __init__(self, owner: SharedPipeline, batch: Batch) -> None:
        self.owner = owner
        self.batch = batch
        self.size: int = batch.size
        self.moves = 0


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
        self._unsent: dict[NetworkKey, list[_Piece]] = {}
        self._sent: dict[int, tuple[NetworkKey, list[_Piece]]] = {}
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
                network = client.network if key == self._own_network else _load(client, *key)
            except EvaluatorLost as error:
                self._lost(client, str(error))
                return None
            except EvaluatorError as error:
                raise NoEvaluatorError(f"the evaluator cannot serve {key[0]!r}: {error}") from None
            self._networks[key] = network
        return network

    def add(self, owner: SharedPipeline, batch: Batch) -> None:
        """Have a batch sent with the next `flush`. It must stay as it is until then."""
        self._unsent.setdefault(owner.network, []).append(_Piece(owner, batch))

    def flush(self) -> set[SharedPipeline]:
        """Send what the searches have collected, unless the evaluator has plenty and more may join it.

        Returns those whose batches cannot be sent, with their `failure`.
        """
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
            if waiting < most and under_way >= ENOUGH_REQUESTS * most:
                break
            size, end = pieces[start].size, start + 1
            while end < len(pieces) and size + pieces[end].size <= most:
                size, end = size + pieces[end].size, end + 1
            request = pieces[start:end]
            try:
                identity = client.submit(_merged(request), priority=self._priority, network=network.name)
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
                served |= _hand_out(completed, pieces)
            elif key is not None:
                served |= self._refused(client, completed.error, key, pieces)

    def _count(self, completed: Completed) -> None:
        assert completed.evaluation is not None
        if self.first_sent is None:
            self.first_sent = monotonic() - (completed.queue_ms + completed.compute_ms) / 1000
        self.evaluations += len(completed.evaluation)
        self.device_batches += len(completed.evaluation) / max(1, completed.batch_rode)

    def _refused(
        self, client: EvaluatorClient, error: RemoteError | None, key: NetworkKey, pieces: list[_Piece]
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


def _load(client: EvaluatorClient, weights: str, policy_head: str, value_head: str) -> NetworkInfo:
    from pathlib import Path

    for network in client.networks:
        if weights in (network.name, network.content_hash):
            return network
    path = str(Path(weights).expanduser().resolve()) if weights else ""
    return client.load(path, policy_head=policy_head, value_head=value_head, timeout=600.0)


def _fail(pieces: list[_Piece], error: PipelineError | NoEvaluatorError) -> set[SharedPipeline]:
    owners = {piece.owner for piece in pieces if piece.owner.waits_for(piece.batch)}
    for owner in owners:
        owner.failure = error
    return owners


def _hand_out(completed: Completed, pieces: list[_Piece]) -> set[SharedPipeline]:
    """Give each search its part of an answer, those that no longer want it left out; returns the others."""
    served: set[SharedPipeline] = set()
    evaluation = completed.evaluation
    assert evaluation is not None
    position = move = 0
    for piece in pieces:
        if piece.owner.waits_for(piece.batch):
            piece.owner.apply(
                piece.batch,
                evaluation.logits[move : move + piece.moves],
                evaluation.wdl[position : position + piece.size],
                evaluation.moves_left[position : position + piece.size],
            )
            served.add(piece.owner)
        position += piece.size
        move += piece.moves
    return served


def _merged(pieces: list[_Piece]) -> PositionBatch:
    """The pieces' positions as one batch, copied."""
    offsets = np.zeros(sum(piece.size for piece in pieces) + 1, np.uint32)
    position = move = 0
    for piece in pieces:
        own = piece.batch.move_offsets
        piece.moves = int(own[-1])
        np.add(own[1:], move, out=offsets[position + 1 : position + piece.size + 1], casting="unsafe")
        position += piece.size
        move += piece.moves
    positions = np.concatenate([piece.batch.positions for piece in pieces])
    return PositionBatch(
        positions.view(POSITION_DTYPE).reshape(position),
        offsets,
        np.concatenate([piece.batch.moves for piece in pieces]),
    )

# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluation of shard positions by the evaluator's network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.link.requests import Requests
from engine.options import Options
from protocol import EvaluatorLost, PositionBatch
from training.data.packed import PackedPositions, unpack_positions
from training.errors import TrainingError

if TYPE_CHECKING:
    from protocol import EvaluatorClient, NetworkInfo

REQUESTS_IN_FLIGHT = 3
LEAST_BATCH = 64


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Positions and the policy indices of their legal moves: row i has moves[start[i] : start[i + 1]]."""

    positions: PackedPositions
    start: NDArray[np.int64]
    moves: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def concatenate(cls, parts: Sequence[EncodedRows]) -> EncodedRows:
        """Join at least one part, in order."""
        names = ("boards", "masks", "repetitions", "rule50")
        packed = PackedPositions(
            *(np.concatenate([getattr(part.positions, name) for part in parts]) for name in names)
        )
        before = np.cumsum([0] + [len(part.moves) for part in parts])
        starts = [part.start[:-1] + first for part, first in zip(parts, before[:-1], strict=True)]
        moves = np.concatenate([part.moves for part in parts])
        return cls(packed, np.concatenate([*starts, before[-1:]]).astype(np.int64), moves)

    def rows(self, index: NDArray[np.int64]) -> EncodedRows:
        """Return the rows at these indices."""
        counts = np.diff(self.start)[index]
        start = np.concatenate([[0], np.cumsum(counts)])
        flat = np.repeat(self.start[index] - start[:-1], counts) + np.arange(start[-1])
        return EncodedRows(self.positions[index], start, self.moves[flat])

    def batches(self, size: int) -> Iterator[tuple[int, PositionBatch]]:
        """Yield batches in order, each with the index of its first row."""
        for first in range(0, len(self), size):
            offsets = self.start[first : first + size + 1]
            positions = unpack_positions(self.positions[first : first + size])
            moves = self.moves[offsets[0] : offsets[-1]]
            yield first, PositionBatch(positions, (offsets - offsets[0]).astype(np.uint32), moves)


class Evaluation:
    """A context manager that connects to the options' evaluator, or starts it.

    note: receives messages. Used by one thread. Methods raise NoEvaluatorError, and TrainingError if it
    rejects positions, or if its network changes: results must not mix two networks.
    """

    def __init__(self, options: Options, note: Callable[[str], None]) -> None:
        self._link = EvaluatorLink(EvaluatorSettings.of(options), note)
        self._network: NetworkInfo | None = None
        self._unsent: deque[tuple[int, PositionBatch]] = deque()
        self._requests: Requests[tuple[int, PositionBatch]] = Requests(
            self._link, "selfplay", self._unsent.append
        )

    def __enter__(self) -> Self:
        self._link.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._link.close()

    @property
    def network(self) -> NetworkInfo:
        """Wait for the evaluator and return its network."""
        return self._connected().network

    def evaluate(
        self, rows: EncodedRows, step: Callable[[int], None] = lambda count: None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return logits [m] of all legal moves and WDL [rows, 3].
        step: called with the number of newly evaluated positions."""
        client = self._connected()
        batches = rows.batches(min(client.max_batch, max(LEAST_BATCH, client.recommended_batch)))
        logits = np.zeros(len(rows.moves), np.float32)
        wdl = np.zeros((len(rows), 3), np.float32)
        left = len(rows)
        while left:
            self._send(batches)
            answer = self._requests.receive(None)
            if answer is None:
                continue
            request, completed = answer
            if request is None:
                continue
            if completed.evaluation is None:
                raise TrainingError(f"the evaluator refuses positions: {completed.error}")
            first, last = request[0], request[0] + len(request[1])
            wdl[first:last] = completed.evaluation.wdl
            logits[rows.start[first] : rows.start[last]] = completed.evaluation.logits
            left -= last - first
            step(last - first)
        return logits, wdl

    def _send(self, batches: Iterator[tuple[int, PositionBatch]]) -> None:
        """Send batches up to REQUESTS_IN_FLIGHT."""
        self._connected()
        while len(self._requests.sent) < REQUESTS_IN_FLIGHT:
            if not self._unsent:
                following = next(batches, None)
                if following is None:
                    return
                self._unsent.append(following)
            if not self._requests.send(self._unsent[0][1], self._unsent[0]):
                return
            self._unsent.popleft()

    def _connected(self) -> EvaluatorClient:
        """Return the evaluator's client; wait while a connection is possible."""
        while (client := self._requests.connect()) is None:
            self._link.wait(1.0)
        if not client.in_flight:
            with suppress(EvaluatorLost):  # The next sender gets the error.
                client.take_notices()
        network = client.network
        first = self._network = self._network or network
        if network.identity != first.identity:
            raise TrainingError(
                f"the evaluator's network is now {network.name} ({network.content_hash[:8]}), it was "
                f"{first.name} ({first.content_hash[:8]}): start again, or name a network by its file"
            )
        return client

"""Batches of many searches in one request: put together, and taken apart when the answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine._core import Batch, Tree
from engine.evaluation.link import NoEvaluatorError
from engine.evaluation.pipeline import PipelineError, SpareBatches
from protocol.batch import POSITION_DTYPE, EvaluationBatch, PositionBatch

if TYPE_CHECKING:
    from engine.evaluation.shared import NetworkKey, SharedEvaluator

Floats = NDArray[np.float32]


class SharedPipeline(SpareBatches):
    """The batches of one search among those of others: the Pipeline of a pool's searches.

    Answers come through SharedEvaluator.receive. failure: why the evaluator will not evaluate what this
    search sent; it is over then.
    """

    def __init__(
        self, tree: Tree, evaluator: SharedEvaluator, network: NetworkKey, content_hash: str, capacity: int
    ) -> None:
        """content_hash: of the network whose evaluations the tree holds."""
        super().__init__(capacity)
        self.evaluations = 0
        self.batches = 0
        self.network = network
        self.content_hash = content_hash
        self.failure: PipelineError | NoEvaluatorError | None = None
        self._tree = tree
        self._evaluator = evaluator
        self._on_their_way: list[Batch] = []

    @property
    def in_flight(self) -> int:
        return len(self._on_their_way)

    @property
    def in_flight_positions(self) -> int:
        return sum(batch.size for batch in self._on_their_way)

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
        return batch in self._on_their_way

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


class Piece:
    """A batch of a search in a request, or on its way into one."""

    __slots__ = ("batch", "moves", "owner", "size")

    def __init__(self, owner: SharedPipeline, batch: Batch) -> None:
        self.owner = owner
        self.batch = batch
        self.size: int = batch.size
        self.moves = 0


def hand_out(evaluation: EvaluationBatch, pieces: list[Piece]) -> set[SharedPipeline]:
    """Give each search its part of an answer, those that no longer want it left out; returns the others."""
    served: set[SharedPipeline] = set()
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


def joined(pieces: list[Piece]) -> PositionBatch:
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

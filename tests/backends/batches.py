# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches that the conformance suite asks for."""

from collections.abc import Sequence

import numpy as np

from evaluator.backends import Backend
from evaluator.backends.common.probe import probe_batch
from protocol.batch import POLICY_SIZE, EvaluationBatch, PositionBatch


def varied_batch(count: int, seed: int = 0) -> PositionBatch:
    """Made-up positions with 0 to 60 legal moves each."""
    rng = np.random.default_rng(seed)
    moves = [np.sort(rng.choice(POLICY_SIZE, rng.integers(0, 61), replace=False)) for _ in range(count)]
    offsets = np.cumsum([0, *map(len, moves)]).astype(np.uint32)
    return PositionBatch(probe_batch(count, seed).positions, offsets, np.concatenate(moves).astype(np.uint16))


def part(batch: PositionBatch, indices: Sequence[int]) -> PositionBatch:
    """Some positions of a batch, in the order given, with their moves."""
    spans = [slice(*batch.move_offsets[index : index + 2]) for index in indices]
    moves = [batch.moves[span] for span in spans]
    offsets = np.cumsum([0, *map(len, moves)]).astype(np.uint32)
    return PositionBatch(batch.positions[list(indices)], offsets, np.concatenate(moves))


def split(result: EvaluationBatch, batch: PositionBatch) -> list[tuple[np.ndarray, np.ndarray, np.float32]]:
    """(logits, wdl, moves left) of each position."""
    offsets = batch.move_offsets
    return [
        (result.logits[offsets[i] : offsets[i + 1]], result.wdl[i], result.moves_left[i])
        for i in range(len(batch))
    ]


def evaluate_in_parts(backend: Backend, batch: PositionBatch) -> EvaluationBatch:
    """More positions than a backend takes at once."""
    results = [
        backend.evaluate(part(batch, range(start, min(start + backend.max_batch, len(batch)))))
        for start in range(0, len(batch), backend.max_batch)
    ]
    return EvaluationBatch(
        np.concatenate([each.logits for each in results]),
        np.concatenate([each.wdl for each in results]),
        np.concatenate([each.moves_left for each in results]),
    )


def as_result(one: tuple[np.ndarray, np.ndarray, np.float32]) -> EvaluationBatch:
    """Of a single position."""
    logits, wdl, moves_left = one
    return EvaluationBatch(logits, wdl[None], np.array([moves_left]))

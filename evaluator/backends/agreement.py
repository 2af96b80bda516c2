# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a backend's results are from the right ones, and how far they may be.

Used by `python -m evaluator verify` and by the conformance suite (tests/backends).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from protocol.batch import EvaluationBatch, PositionBatch

TIE = 0.25
"""Moves whose right logits are closer than this part of what a logit may be off count as equally good. fp16
rounds the activations of the golden networks so that logits are off by 0.001 (root mean square), and their
best two moves lie that close in one position of a hundred: no other storage of any one tensor changes
that."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest errors: of a logit, absolute or, if that is more, `logits_of_spread` of the spread of all
    logits; of a probability; of the moves left in plies (only the conformance suite's small networks are held
    to it). best_moves: the smallest share of positions with the same best move, ties counted as the same."""

    logits: float
    wdl: float
    moves_left: float
    logits_of_spread: float = 0.0
    best_moves: float = 0.99


FP32 = Tolerance(1e-4, 1e-4, 2e-3)
FP16 = Tolerance(2e-2, 5e-3, 0.5, logits_of_spread=0.01)
BF16 = Tolerance(0.15, 0.04, 4.0, logits_of_spread=0.08)
INT8 = Tolerance(2e-2, 0.1, 10.0, logits_of_spread=0.05, best_moves=0.9)
INT4 = Tolerance(2e-2, 0.8, 60.0, logits_of_spread=0.5, best_moves=0.4)
FP8 = Tolerance(2e-2, 0.4, 20.0, logits_of_spread=0.12, best_moves=0.8)
"""Of fp16 with an attention network's weights in so few bits, or its products of 8 bits: about twice what
rounding does to the networks of docs/lab/gpu-formats.md. What int4 is allowed says how little it can be
relied on."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest errors against the right results, and shares of positions with the same best move: the very
    same one, and one that is as good within TIE. spread: largest less smallest of the right logits."""

    logits: float
    spread: float
    wdl: float
    moves_left: float
    same_best_move: float
    as_good_a_move: float

    def within(self, tolerance: Tolerance) -> bool:
        """Whether logits, probabilities and best moves are as they should be. NaN never is."""
        return (
            self.logits <= logits_limit(tolerance, self.spread)
            and self.wdl <= tolerance.wdl
            and self.as_good_a_move >= tolerance.best_moves
        )


def logits_limit(tolerance: Tolerance, spread: float) -> float:
    return max(tolerance.logits, tolerance.logits_of_spread * spread)


def agreement(
    result: EvaluationBatch, expected: EvaluationBatch, batch: PositionBatch, tolerance: Tolerance
) -> Agreement:
    """Compare two results for a batch. Positions without moves have no best move and do not count for it."""
    spread = float(np.ptp(expected.logits)) if len(expected.logits) else 0.0
    tie = TIE * logits_limit(tolerance, spread)
    same, as_good = [], []
    for start, end in pairwise(batch.move_offsets):
        if start < end:
            right = expected.logits[start:end]
            chosen = int(np.argmax(result.logits[start:end]))
            same.append(chosen == int(np.argmax(right)))
            as_good.append(bool(right[chosen] >= right.max() - tie))
    return Agreement(
        logits=float(np.abs(result.logits - expected.logits).max(initial=0.0)),
        spread=spread,
        wdl=float(np.abs(result.wdl - expected.wdl).max()),
        moves_left=float(np.abs(result.moves_left - expected.moves_left).max()),
        same_best_move=float(np.mean(same)) if same else 1.0,
        as_good_a_move=float(np.mean(as_good)) if as_good else 1.0,
    )

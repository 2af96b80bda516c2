# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of a backend's results against the reference, and their tolerances.

Used by `python -m evaluator verify` and by the conformance suite (tests/backends).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from protocol.batch import EvaluationBatch, PositionBatch

TIE = 0.25
"""Moves count as tied if their reference logits differ by less than this share of a logit's tolerance. fp16
activations change the golden networks' logits by 0.001 (root mean square), and in one position of a hundred
the two best moves are closer than that. Another format for any single tensor does not change that."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest errors: of a logit, absolute or, if larger, `logits_of_spread` of the spread of all logits;
    of a probability; of the moves left in plies (checked only with the conformance suite's small networks).
    best_moves: the smallest share of positions with the same best move, counting ties as the same."""

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
"""For fp16 with an attention network's weights in int8 or int4, or with 8-bit products: about twice the
rounding error with the networks of docs/lab/gpu-formats.md. The tolerance of int4 shows that it is
unreliable."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest errors against the reference, and shares of positions with the same best move: strictly, and
    counting moves within TIE. spread: largest minus smallest reference logit."""

    logits: float
    spread: float
    wdl: float
    moves_left: float
    same_best_move: float
    as_good_a_move: float

    def within(self, tolerance: Tolerance) -> bool:
        """Return True if logits, probabilities and best moves are within tolerance. NaN never is."""
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
    """Compare two results for a batch. Positions without moves do not count for the best moves."""
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

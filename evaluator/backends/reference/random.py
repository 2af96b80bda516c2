# SPDX-License-Identifier: GPL-3.0-or-later
"""Pseudo-random evaluations from a hash of the position: deterministic, at almost no cost.

For search tests and for benchmarks of everything but the network. random_evaluation.py specifies them.
"""

from __future__ import annotations

from evaluator.backends.common.base import Backend
from evaluator.backends.reference.random_evaluation import random_evaluation
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

NEEDS_NETWORK = False


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec | None, *, threads: int | None = None) -> RandomBackend:
    return RandomBackend()


class RandomBackend(Backend):
    """A backend without a network."""

    name = "random"
    on_host = True
    device = "none"
    max_batch = 16384
    finite = True

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        return random_evaluation(batch)

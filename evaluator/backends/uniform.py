# SPDX-License-Identifier: GPL-3.0-or-later
"""Every move is equally good and every position a balanced one. For tests of the search and of the
service."""

from __future__ import annotations

import numpy as np

from evaluator.backends.base import Backend
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

NEEDS_NETWORK = False


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec | None, *, threads: int | None = None) -> UniformBackend:
    return UniformBackend()


class UniformBackend(Backend):
    """Logits 0, W D L = 0.25 0.5 0.25, moves left 0. Needs no network."""

    name = "uniform"
    on_host = True
    device = "none"
    max_batch = 16384

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        count = len(batch)
        return EvaluationBatch(
            logits=np.zeros(len(batch.moves), np.float32),
            wdl=np.tile(np.array([0.25, 0.5, 0.25], np.float32), (count, 1)),
            moves_left=np.zeros(count, np.float32),
        )

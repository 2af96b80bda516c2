# SPDX-License-Identifier: GPL-3.0-or-later
"""Uniform evaluations: equal moves and balanced positions, for tests of the search and the service."""

from __future__ import annotations

import numpy as np

from evaluator.backends.common.base import Backend
from evaluator.network.spec import NetworkSpec
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch

NEEDS_NETWORK = False


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec | None, settings: DeviceSettings) -> UniformBackend:
    return UniformBackend()


class UniformBackend(Backend):
    """A backend without a network: logits 0, W D L = 0.25 0.5 0.25, moves left 0."""

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

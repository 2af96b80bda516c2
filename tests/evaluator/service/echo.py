# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches of numbered positions, and a backend whose answers tell every one of them apart."""

import threading
from collections.abc import Callable

import numpy as np

from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.sensors import Sensors
from protocol.batch import EvaluationBatch, PositionBatch
from tests.backends.batches import varied_batch

WAIT_S = 60.0
"""Longest wait for anything; a test that needs it has failed."""


def expected(batch: PositionBatch) -> EvaluationBatch:
    """What EchoBackend answers: numbers that tell every position and every move apart."""
    rule50 = batch.positions["rule50"].astype(np.float32)
    wdl = np.stack([rule50, rule50 + 0.25, rule50 + 0.5], axis=1)
    return EvaluationBatch(batch.moves.astype(np.float32), wdl, rule50 * 2)


def numbered_batch(count: int, first: int = 0, seed: int = 1) -> PositionBatch:
    """A batch whose positions have rule50 = first, first + 1, …"""
    batch = varied_batch(count, seed)
    batch.positions["rule50"] = np.arange(first, first + count)
    return batch


def same(actual: EvaluationBatch, wanted: EvaluationBatch) -> bool:
    """Whether two evaluations are bit for bit the same."""
    return (
        np.array_equal(actual.logits, wanted.logits)
        and np.array_equal(actual.wdl, wanted.wdl)
        and np.array_equal(actual.moves_left, wanted.moves_left)
    )


class EchoBackend(Backend):
    """Answers from the positions themselves and remembers the sizes of its batches.

    While `gate` is clear, `evaluate` waits for it; `entered` counts the calls that began. `answer` replaces
    what it does. sensed: what its sensors say.
    """

    name = "echo"
    device = "test"

    def __init__(self, max_batch: int = 1024, sensed: Sensors | None = None) -> None:
        self.max_batch = max_batch
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.was_closed = threading.Event()
        self.answer: Callable[[PositionBatch], EvaluationBatch] = expected
        self.sensed = sensed

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        self.sizes.append(len(batch))
        self.entered.release()
        if not self.gate.wait(WAIT_S):
            raise BackendError("the test forgot to open the gate")
        return self.answer(batch)

    def sensors(self) -> Sensors | None:
        return self.sensed

    def close(self) -> None:
        self.was_closed.set()

    @property
    def closed(self) -> bool:
        return self.was_closed.is_set()

    def hold(self) -> None:
        """Keep batches inside from now on, forgetting those before."""
        self.gate.clear()
        self.sizes.clear()
        while self.entered.acquire(blocking=False):
            pass

    def wait_entered(self) -> None:
        """Until one more call has begun."""
        assert self.entered.acquire(timeout=WAIT_S), "no batch reached the device"

"""How far a device may be off the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from evaluator.backends.probe import probe_batch
from evaluator.backends.random import RandomBackend
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.run.executor import Executor
from evaluator.gpu.run.self_check import (
    Check,
    Expected,
    SelfCheck,
    SelfCheckError,
    limits,
    limits_of_eight_bits,
)
from evaluator.network.eight_bits import EightBits
from protocol.batch import EvaluationBatch, PositionBatch

PROBE = probe_batch(2, seed=7)


def evaluate(batch: PositionBatch) -> EvaluationBatch:
    return RandomBackend().evaluate(batch)


@dataclass
class Off:
    """A device, or a way to compute a network, that is off by a share of the logits' spread. seed: of what it
    adds, another for each."""

    share: float
    seed: int
    buckets: tuple[int, ...] = (1, 2, 16)
    alternatives: dict[int, Any] = field(default_factory=dict)

    def evaluate(self, batches: list[PositionBatch]) -> EvaluationBatch:
        return self.of(evaluate(batches[0]))

    def of(self, right: EvaluationBatch) -> EvaluationBatch:
        noise = np.random.default_rng(self.seed).standard_normal(len(right.logits)).astype(np.float32)
        off = right.logits + np.float32(self.share * right.logits.std()) * noise
        return EvaluationBatch(off, right.wdl, right.moves_left)


def checked(device: Off, rounding: float | None) -> None:
    """Check a device whose network's rounding is so far off; None: the rounded network alone is known."""
    exact = Expected(PROBE, evaluate)
    rounded = Expected(PROBE, lambda batch: Off(rounding or 0.0, seed=1).of(evaluate(batch)))
    check = Check(rounded, limits_of_eight_bits(EightBits.E4M3), None if rounding is None else exact)
    SelfCheck(cast(Executor, device), {0: check}, "device").run()


def test_a_network_that_rounding_changes_much_may_be_off_as_much() -> None:
    device = Off(0.3, seed=2)
    with pytest.raises(SelfCheckError, match="logits off by"):
        checked(device, rounding=None)
    checked(device, rounding=0.4)
    with pytest.raises(SelfCheckError, match="logits off by"):
        checked(device, rounding=0.02)  # a network that it hardly changes keeps its limits


def test_a_wrong_device_is_found_however_much_rounding_changes() -> None:
    with pytest.raises(SelfCheckError, match="logits off by"):
        checked(Off(1.0, seed=2), rounding=2.0)


@pytest.mark.parametrize("precision", list(Precision))
def test_a_device_within_its_limits_passes(precision: Precision) -> None:
    check = Check(Expected(PROBE, evaluate), limits(precision))
    SelfCheck(cast(Executor, Off(limits(precision)[0] / 2, seed=3)), {0: check}, "device").run()
    with pytest.raises(SelfCheckError, match="at batch 1: logits off by"):
        SelfCheck(cast(Executor, Off(10 * limits(precision)[0], seed=3)), {0: check}, "device").run()

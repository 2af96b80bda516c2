# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a device may be off the reference."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.common.probe import uneven_batch
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.run.buckets import BUCKETS
from evaluator.backends.gpu.run.executor import Executor
from evaluator.backends.gpu.run.self_check import (
    CHECKED_MOVES,
    FP8_LIMITS,
    Check,
    Expected,
    Limits,
    SelfCheck,
    SelfCheckError,
    limits,
    rows,
)
from evaluator.backends.reference.random import RandomBackend
from protocol.batch import EvaluationBatch, PositionBatch

PROBE = uneven_batch(CHECKED_MOVES, seed=7)


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
    lease: DeviceLease = exclusive_lease

    def evaluate(self, batches: list[PositionBatch]) -> EvaluationBatch:
        return self.of(evaluate(batches[0]))

    def of(self, right: EvaluationBatch) -> EvaluationBatch:
        noise = np.random.default_rng(self.seed).standard_normal(len(right.logits)).astype(np.float32)
        off = right.logits + np.float32(self.share * right.logits.std()) * noise
        return EvaluationBatch(off, right.wdl, right.moves_left)


@dataclass
class MixedUp:
    """A device that evaluates the right positions, and takes each at another's place. move: the rows of a
    batch."""

    move: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    buckets: tuple[int, ...]
    alternatives: dict[int, Any] = field(default_factory=dict)
    lease: DeviceLease = exclusive_lease

    def evaluate(self, batches: list[PositionBatch]) -> EvaluationBatch:
        right = batches[0]
        mixed = right.positions[self.move(np.arange(len(right)))]
        return evaluate(PositionBatch(mixed, right.move_offsets, right.moves))


@dataclass
class OfAnothersMoves(MixedUp):
    """A device that takes the right positions, and each one's moves from the list of another."""

    def evaluate(self, batches: list[PositionBatch]) -> EvaluationBatch:
        right = batches[0]
        begins, numbers = right.move_offsets[:-1], np.diff(right.move_offsets)
        at = np.arange(len(right.moves)) - np.repeat(begins, numbers)  # of each move in its list
        mixed = at + np.repeat(begins[self.move(np.arange(len(right)))], numbers)
        return evaluate(
            PositionBatch(right.positions, right.move_offsets, np.take(right.moves, mixed, mode="wrap"))
        )


def checked(device: Off, rounding: float | None) -> None:
    """Check a device whose network's rounding is so far off; None: the rounded network alone is known."""
    exact = Expected(PROBE, evaluate)
    rounded = Expected(PROBE, lambda batch: Off(rounding or 0.0, seed=1).of(evaluate(batch)))
    check = Check(rounded, FP8_LIMITS, None if rounding is None else exact)
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
    with pytest.raises(SelfCheckError, match="batch 1: logits"):
        SelfCheck(cast(Executor, Off(10 * limits(precision)[0], seed=3)), {0: check}, "device").run()


def refused(device: MixedUp, limit: Limits) -> bool:
    """Whether a device is refused with a reason."""
    try:
        SelfCheck(cast(Executor, device), {0: Check(Expected(PROBE, evaluate), limit)}, "device").run()
    except SelfCheckError as error:
        assert "logits off by" in str(error)
        return True
    return False


@pytest.mark.parametrize("device", [MixedUp, OfAnothersMoves])
@pytest.mark.parametrize("by", [1, 2, 3, 4, 6, 8, 16, 33, 132, 256])
def test_rows_that_are_mixed_up_by_whole_tiles_are_seen(device: type[MixedUp], by: int) -> None:
    """Within the widest limits, at a size that is a power of two and at one that is not."""
    for size in (264, 512):
        assert not refused(device(lambda place: place, (size,)), FP8_LIMITS)
        assert refused(device(lambda place: np.roll(place, by), (size,)), FP8_LIMITS)


@pytest.mark.parametrize("digit", range(9))
def test_rows_that_have_changed_places_within_tiles_are_seen(digit: int) -> None:
    assert refused(MixedUp(lambda place: place ^ (1 << digit), (512,)), FP8_LIMITS)


@pytest.mark.parametrize("size", BUCKETS)
def test_no_place_of_a_batch_is_like_another(size: int) -> None:
    order = rows(size, len(CHECKED_MOVES))
    assert set(order) == set(range(len(CHECKED_MOVES))) or size < 4
    assert all(order[shift:] != order[:-shift] for shift in range(1, size - size // 4))


def test_self_check_compares_each_position_with_the_reference() -> None:
    expected = Expected(PROBE, evaluate)
    batch, wanted = expected.batch(21), expected.answers(21)
    found = evaluate(batch)
    assert len(batch) == 21 and len(batch.moves) == len(wanted.logits)
    assert np.array_equal(found.logits, wanted.logits) and np.array_equal(found.wdl, wanted.wdl)

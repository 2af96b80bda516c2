# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-check of an executor against the reference, for every batch size before it is used.

Also chooses the fastest correct program if a size has several, and makes small batches concurrent if that is
faster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evaluator.backends.gpu.driver.device import DeviceError, NotFiniteOutput, OutOfDeviceMemory
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.program import Program
from evaluator.backends.gpu.run.device_streams import FEWEST_UNITS, MOST_MS, MOST_POSITIONS, WORTHWHILE
from evaluator.backends.gpu.run.executor import Executor
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger(__name__)

TOGETHER = 2
"""Batches per thread in a concurrent check."""

REPEATS = 3
"""Back-to-back runs when timing concurrent batches."""

_WAY = "one launch for all encoders"
"""The way of every program that is an alternative to the usual one."""

Limits: TypeAlias = tuple[float, float]
"""Root mean square error of the logits over their spread (1 for a wrong kernel), and the largest error of a
win, draw or loss probability."""

_LIMITS: dict[Precision, Limits] = {
    Precision.FP32: (1e-3, 1e-3),
    Precision.FP16: (0.03, 0.01),
    Precision.BF16: (0.15, 0.06),
}

FP8_LIMITS: Limits = (0.2, 0.15)
"""Limits of products in fp8 against the network with rounded products. The rounding is the same, but a small
difference between fp16 and the reference can round a number differently, by 6 to 12 % in e4m3. That alone
gives errors of 0.05 to 0.07 and up to 0.06 with the networks of docs/lab/gpu-formats.md."""

ROUNDING_TIMES, MOST_BY_ROUNDING = 1.5, 0.6
"""Two correct computations of an 8-bit network differ about as much as the rounding changes its results. A
deep network with random weights amplifies both to a third of the logits' spread. The limit is ROUNDING_TIMES
the effect of rounding, but less than the error of a wrong kernel."""

CHECKED_MOVES = (35, 20, 70)
"""Legal moves of the checked positions. There are three, repeated to fill a bucket, because more would delay
the start in the reference. Their numbers differ, to detect moves looked up in another position's list, and 70
is more than a wave's lanes."""


class SelfCheckError(Exception):
    """A device computes wrong results or fails. The message is for the user."""


class Expected:
    """Reference results for a few positions, computed while a network opens."""

    def __init__(self, probe: PositionBatch, reference: Callable[[PositionBatch], EvaluationBatch]) -> None:
        """probe: the positions. reference: evaluates the network with the same rounded weights; called at
        most once."""
        self._probe = probe
        self._reference = reference
        self._result: Future[EvaluationBatch] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start computing; only the first call has an effect. Any thread may call this."""
        with self._lock:
            if self._result is None:
                thread = ThreadPoolExecutor(1, "reference")
                self._result = thread.submit(self._reference, self._probe)
                thread.shutdown(wait=False)

    def wait(self) -> EvaluationBatch:
        """Wait for the evaluation and return it."""
        self.start()
        assert self._result is not None
        return self._result.result()

    def batch(self, size: int) -> PositionBatch:
        """Return a batch of `size` of the positions, in the order of `rows`."""
        return PositionBatch.concatenate([self._probe.slice(row, row + 1) for row in self._rows(size)])

    def answers(self, size: int) -> EvaluationBatch:
        """Return the expected results of such a batch. Waits for the reference."""
        moves = np.diff(self._probe.move_offsets).tolist()
        each = [*self.wait().split((1, number) for number in moves)]
        return EvaluationBatch.concatenate([each[row] for row in self._rows(size)])

    def _rows(self, size: int) -> list[int]:
        return rows(size, len(self._probe))


def rows(size: int, count: int) -> list[int]:
    """Return which of `count` positions is at each place of a batch: by the number of ones in the place's
    binary number.

    Places that differ in one binary digit never have the same position, and no shift repeats the order. So a
    kernel that mixes up rows of its tiles, which are powers of two, cannot be right by chance.
    """
    return [place.bit_count() % count for place in range(size)]


def limits(precision: Precision) -> Limits:
    """Return the limits of a storage format."""
    return _LIMITS[precision]


@dataclass(frozen=True, slots=True)
class Check:
    """Expected results of a batch and their limits. exact: results before rounding to 8 bits, if any; the
    effect of rounding then widens the limits."""

    expected: Expected
    limits: Limits
    exact: Expected | None = None

    def allowed(self) -> Limits:
        """Return the limits for this network. Waits for the reference."""
        if self.exact is None:
            return self.limits
        rounded, exact = self.expected.wait(), self.exact.wait()
        logits, wdl = (ROUNDING_TIMES * error for error in errors(rounded, exact))
        return max(self.limits[0], min(MOST_BY_ROUNDING, logits)), max(
            self.limits[1], min(MOST_BY_ROUNDING, wdl)
        )


def errors(found: EvaluationBatch, expected: EvaluationBatch, spread: float | None = None) -> Limits:
    """Return the errors of results in the units of `Limits`. spread: of the logits (default: that of the
    expected ones)."""
    spread = float(expected.logits.std()) if spread is None else spread
    logits = float(np.sqrt(np.square(found.logits - expected.logits).mean())) / (spread or 1.0)
    return logits, float(np.abs(found.wdl - expected.wdl).max())


class SelfCheck:
    """Compares an executor with the reference. checks: by the smallest batch size for each. name: of the
    device, for messages."""

    def __init__(self, executor: Executor, checks: Mapping[int, Check], name: str) -> None:
        self._executor = executor
        self._checks = checks
        self._name = name

    def run(self) -> None:
        """Choose programs, then compare the results of every bucket. Raises SelfCheckError."""
        self.choose_programs()
        for size in self._executor.buckets:
            problem = self._problem(size)
            if problem:
                raise SelfCheckError(
                    f"{self._name} fails its self-check at batch {size}: {problem}; please report it with "
                    f"the output of `wavefront-evaluator devices`"
                )

    def choose_streams(self) -> None:
        """Make batches concurrent at the sizes where that is faster and correct. Measuring takes
        milliseconds. Raises DeviceError."""
        executor, info = self._executor, self._executor.device.info
        at_once = len(executor.in_flight)
        if info.is_small_apu or info.compute_units < FEWEST_UNITS or at_once < 2:
            return
        one_by_one: dict[int, float] = {}
        for size in executor.buckets:
            if size > MOST_POSITIONS or not executor.may_compute_beside(size):
                continue
            milliseconds = executor.time_together(size, REPEATS)
            if milliseconds > at_once * MOST_MS:
                break
            one_by_one[size] = milliseconds
        try:
            chosen = self._streams_that_pay(one_by_one)
        except (OutOfDeviceMemory, SelfCheckError) as error:  # streams are optional
            log.warning("%s: batches compute one after the other: %s", self._name, error)
            chosen = []
        executor.compute_beside(chosen)

    def _streams_that_pay(self, one_by_one: Mapping[int, float]) -> list[int]:
        """Open device streams for some batch sizes, and return the sizes that are faster and correct with
        them. one_by_one: milliseconds of one batch per slot in sequence."""
        executor, chosen = self._executor, []
        if not one_by_one or not executor.open_streams(one_by_one):
            return []
        executor.compute_beside(one_by_one)
        for size, serial_ms in one_by_one.items():
            milliseconds = executor.time_together(size, REPEATS)
            if milliseconds > WORTHWHILE * serial_ms:
                continue
            problem = self._problem(size, at_once=len(executor.in_flight))
            if problem:
                log.warning("%s: batches of %d beside each other: %s", self._name, size, problem)
                continue
            text = "batches of %d: %.3f ms one after the other, %.3f ms beside each other"
            log.info(text, size, serial_ms, milliseconds)
            chosen.append(size)
        return chosen

    def choose_programs(self) -> None:
        """Choose the fastest correct program of every bucket with several. Measuring takes milliseconds, so
        it is done at every start. Raises DeviceError if the usual program cannot be timed."""
        for size, (usual, *others) in self._executor.alternatives.items():
            self._choose_program(size, usual, others)

    def _choose_program(self, size: int, usual: Program, others: list[Program]) -> None:
        executor, name = self._executor, self._name
        best, best_ms = usual, executor.time(size)
        for program in others:
            try:
                executor.select(size, program)
                problem = self._problem(size)
                if problem:
                    log.warning("%s: %s is wrong at batch %d: %s", name, _WAY, size, problem)
                    continue
                milliseconds = executor.time(size)
            except (SelfCheckError, DeviceError) as error:
                log.warning("%s: %s fails at batch %d: %s", name, _WAY, size, error)
                continue
            log.info("batch %d: %.3f ms so far, %.3f ms by %s", size, best_ms, milliseconds, _WAY)
            if milliseconds < best_ms:
                best, best_ms = program, milliseconds
        executor.select(size, best)

    def _problem(self, size: int, *, at_once: int = 1) -> str:
        """Return what is wrong with a bucket's results; empty if they are correct. at_once: number of
        concurrent threads. Raises SelfCheckError if there are no results."""
        check = self._checks[max(smallest for smallest in self._checks if smallest <= size)]
        expected = check.expected
        try:
            batch = expected.batch(size)
            with self._executor.lease():
                if at_once == 1:
                    results = [self._executor.evaluate([batch])]
                else:
                    with ThreadPoolExecutor(at_once) as threads:
                        batches = [[batch]] * (TOGETHER * at_once)
                        results = list(threads.map(self._executor.evaluate, batches))
        except NotFiniteOutput:
            return "infinite or not a number"
        except (DeviceError, ValueError) as error:
            raise SelfCheckError(f"{self._name}: {error}") from error
        # The spread of all positions, not of those in the batch, so that the limits are the same for all
        # sizes.
        spread = float(expected.wait().logits.std())
        off = [errors(result, expected.answers(size), spread) for result in results]
        logits_error, wdl_error = max(each[0] for each in off), max(each[1] for each in off)
        log.debug("%s, batch %d: logits off by %.2g, wdl by %.2g", self._name, size, logits_error, wdl_error)
        logits_limit, wdl_limit = check.allowed()
        if logits_error <= logits_limit and wdl_error <= wdl_limit:
            return ""
        return f"logits off by {logits_error:.1%} of their spread, win/draw/loss by {wdl_error:.2g}"

# SPDX-License-Identifier: GPL-3.0-or-later
"""Trial runs of an executor against what the reference says: every batch size is checked before it is used,
where there are several programs for one the fastest right one is chosen, and small batches compute beside
each other where that is sooner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from evaluator.gpu.driver.device import DeviceError, NotFiniteOutput, OutOfDeviceMemory
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.program import Launch, LibraryStep, Program
from evaluator.gpu.run.device_streams import FEWEST_UNITS, MOST_MS, MOST_POSITIONS, WORTHWHILE
from evaluator.gpu.run.executor import Executor
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger(__name__)

TOGETHER = 2
"""Batches that each thread evaluates where several are checked at once."""

REPEATS = 3
"""Of a batch whose time beside another one is measured, back to back."""

Limits: TypeAlias = tuple[float, float]
"""Root mean square error of the logits over their spread (a wrong kernel is off by 1), and the largest error
of a win, draw or loss probability."""

_LIMITS: dict[Precision, Limits] = {
    Precision.FP32: (1e-3, 1e-3),
    Precision.FP16: (0.03, 0.01),
    Precision.BF16: (0.15, 0.06),
}

FP8_LIMITS: Limits = (0.2, 0.15)
"""Limits of products in fp8 against the network with rounded products. Rounding is the same, but where fp16
differs a little from the reference's number, it is sometimes rounded to the next one, which in e4m3 is 6 to
12 % away: that alone takes the networks of docs/lab/gpu-formats.md 0.05 to 0.07 and up to 0.06 off."""

ROUNDING_TIMES, MOST_BY_ROUNDING = 1.5, 0.6
"""Two right computations of a network of 8 bits differ about as much as rounding changes what it says: a deep
network with random weights amplifies both to a third of the logits' spread. So may a device, but it stays
below what a wrong kernel would be off by."""

CHECKED_MOVES = (35, 20, 70)
"""Legal moves of the positions that are checked. There are three, repeated to fill a bucket: what the
reference needs for more would delay a start. Their numbers differ, so that moves that are looked up in the
list of another position show, and 70 are more than a wave has lanes."""


class SelfCheckError(Exception):
    """A device computes something else than the reference, or fails; the message is for the user."""


class Expected:
    """What the reference says about a few positions, computed beside the opening of a network."""

    def __init__(self, probe: PositionBatch, reference: Callable[[PositionBatch], EvaluationBatch]) -> None:
        """probe: the positions. reference: evaluates the network, with the same rounded weights; called once
        at most."""
        self._probe = probe
        self._reference = reference
        self._result: Future[EvaluationBatch] | None = None

    def start(self) -> None:
        """Begin to compute, once."""
        if self._result is None:
            thread = ThreadPoolExecutor(1, "reference")
            self._result = thread.submit(self._reference, self._probe)
            thread.shutdown(wait=False)

    def wait(self) -> EvaluationBatch:
        """The evaluation, when it is there."""
        self.start()
        assert self._result is not None
        return self._result.result()

    def batch(self, size: int) -> PositionBatch:
        """`size` of the positions, in the order of `rows`."""
        return PositionBatch.concatenate([self._probe.slice(row, row + 1) for row in self._rows(size)])

    def answers(self, size: int) -> EvaluationBatch:
        """What is right for such a batch. Waits for the reference."""
        moves = np.diff(self._probe.move_offsets).tolist()
        each = [*self.wait().split((1, number) for number in moves)]
        return EvaluationBatch.concatenate([each[row] for row in self._rows(size)])

    def _rows(self, size: int) -> list[int]:
        return rows(size, len(self._probe))


def rows(size: int, count: int) -> list[int]:
    """Which of `count` positions stands at each place of a batch: by the ones in the number of the place, in
    binary.

    Places whose numbers differ in one digit never have the same one, and no shift brings the order back. A
    kernel that mixes up the rows of its tiles, which are powers of two, cannot be right by chance.
    """
    return [place.bit_count() % count for place in range(size)]


def limits(precision: Precision) -> Limits:
    """How far what is stored so may be off."""
    return _LIMITS[precision]


@dataclass(frozen=True, slots=True)
class Check:
    """What a batch is compared with, and how far it may be off. exact: of the network before its products
    were rounded to 8 bits, where they are; what rounding changes then widens the limits."""

    expected: Expected
    limits: Limits
    exact: Expected | None = None

    def allowed(self) -> Limits:
        """The limits of this network. Waits for the reference."""
        if self.exact is None:
            return self.limits
        rounded, exact = self.expected.wait(), self.exact.wait()
        logits, wdl = (ROUNDING_TIMES * error for error in errors(rounded, exact))
        return max(self.limits[0], min(MOST_BY_ROUNDING, logits)), max(
            self.limits[1], min(MOST_BY_ROUNDING, wdl)
        )


def errors(found: EvaluationBatch, expected: EvaluationBatch, spread: float | None = None) -> Limits:
    """How far answers are from others to the same positions, as `Limits` count it. spread: of the logits;
    that of those expected, if it is not given."""
    spread = float(expected.logits.std()) if spread is None else spread
    logits = float(np.sqrt(np.square(found.logits - expected.logits).mean())) / (spread or 1.0)
    return logits, float(np.abs(found.wdl - expected.wdl).max())


def way(program: Program) -> str:
    """How a batch is computed, for the log."""
    steps = program.steps
    if any(isinstance(step, Launch) and step.cooperative for step in steps):
        return "one launch for all encoders"
    own = not any(isinstance(step, LibraryStep) for step in steps)
    return "our own kernels" if own else "many launches"


class SelfCheck:
    """Compares an executor with the reference. checks: by the smallest batch size that each is for. name: of
    the device, for messages."""

    def __init__(self, executor: Executor, checks: Mapping[int, Check], name: str) -> None:
        self._executor = executor
        self._checks = checks
        self._name = name

    def run(self) -> None:
        """Choose among programs, then compare what every bucket computes. Raises SelfCheckError."""
        self.choose_programs()
        for size in self._executor.buckets:
            problem = self._problem(size)
            if problem:
                raise SelfCheckError(
                    f"{self._name} fails its self-check at batch {size}: {problem}; please report it with "
                    f"the output of `python -m evaluator devices`"
                )

    def choose_streams(self) -> None:
        """Have batches of the sizes for which that is sooner compute beside each other, if they are right
        when they do. Measuring takes milliseconds. Raises DeviceError."""
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
        except (OutOfDeviceMemory, SelfCheckError) as error:  # it works without
            log.warning("%s: batches compute one after the other: %s", self._name, error)
            chosen = []
        executor.compute_beside(chosen)

    def _streams_that_pay(self, one_by_one: Mapping[int, float]) -> list[int]:
        """Open device streams for some batch sizes; returns those that are sooner, and right, beside each
        other. one_by_one: milliseconds of a batch in each of those in flight, one after the other."""
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
        """Run every bucket that has several programs by the fastest that computes the right thing. Measuring
        takes milliseconds, so that it is done at every start. Raises DeviceError where the usual program
        cannot be timed."""
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
                    log.warning("%s: %s is wrong at batch %d: %s", name, way(program), size, problem)
                    continue
                milliseconds = executor.time(size)
            except (SelfCheckError, DeviceError) as error:
                log.warning("%s: %s fails at batch %d: %s", name, way(program), size, error)
                continue
            log.info("batch %d: %.3f ms so far, %.3f ms by %s", size, best_ms, milliseconds, way(program))
            if milliseconds < best_ms:
                best, best_ms = program, milliseconds
        executor.select(size, best)

    def _problem(self, size: int, *, at_once: int = 1) -> str:
        """What is wrong with a bucket's results; empty if they agree with the reference. at_once: so many
        threads evaluate at the same time. Raises SelfCheckError if there are no results."""
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
        # The spread of all positions, whichever are in the batch: the limits are the same for all sizes.
        spread = float(expected.wait().logits.std())
        off = [errors(result, expected.answers(size), spread) for result in results]
        logits_error, wdl_error = max(each[0] for each in off), max(each[1] for each in off)
        log.debug("%s, batch %d: logits off by %.2g, wdl by %.2g", self._name, size, logits_error, wdl_error)
        logits_limit, wdl_limit = check.allowed()
        if logits_error <= logits_limit and wdl_error <= wdl_limit:
            return ""
        return f"logits off by {logits_error:.1%} of their spread, win/draw/loss by {wdl_error:.2g}"

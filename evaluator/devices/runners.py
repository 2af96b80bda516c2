# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices and the networks on them: their load, and when the next batch may begin.

Plain data and the rules on it; workers.py has the threads.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from evaluator.backends.common.base import Backend, BackendError, NotFiniteError
from evaluator.scheduling.batching import BatchPolicy, LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger("evaluator.calibration")

RECENT_BATCHES = 256
"""Number of recent batches that are kept per network and device."""

EARLY_ENOUGH = 0.1
"""A thread is not woken to launch a batch earlier by less than this share of the batch's time."""


Calibrate: TypeAlias = Callable[..., tuple[LatencyModel, Callable[[], None]]]
"""Takes a backend, and `lease`; see calibration.latency_model."""


def now_ms() -> float:
    """Return the time of the service's monotonic clock in milliseconds."""
    return time.perf_counter() * 1000.0


@dataclass(slots=True, eq=False)
class Device:
    """A device. Each of its threads runs one batch at a time.

    expected_end_ms: expected end of each running batch. last_end_ms: end of the last batch. looks_at_ms: when
    a waiting thread will check the queues by itself. stuck: given-up calls that have not returned, of all
    networks. last_batch: positions and milliseconds of the last batch. direct: a thread runs batches
    directly, which are not counted otherwise (Dispatcher.begin_directly). reserved: no batch may begin
    because of a measurement (tuning.py). reserved_ms: duration of the last reservation, which ended at
    reserved_end_ms. tuning: what is being measured, in words. trial_end_ms: when it last tried a batch size
    (trials.py), or was first used. tries_at_ms: when to ask again whether it should try one. yields: queues
    of the last batch's network, if that was small and the turn is another's.
    """

    name: str
    threads: int = 1
    expected_end_ms: list[float] = field(default_factory=list)
    last_end_ms: float = 0.0
    looks_at_ms: float | None = None
    stuck: int = 0
    last_batch: tuple[int, float] | None = None
    direct: bool = False
    reserved: bool = False
    reserved_ms: float = 0.0
    reserved_end_ms: float = 0.0
    tuning: str = ""
    trial_end_ms: float = 0.0
    tries_at_ms: float = 0.0
    yields: object = None
    _shares_ms: float = 0.0
    _shares_at_ms: float = 0.0
    _busy_ms: float = 0.0

    @property
    def busy(self) -> bool:
        """True if batches run, or may begin at any time without notice."""
        return bool(self.expected_end_ms) or self.direct

    def share_ms(self, now: float) -> float:
        """Return the device time of each side-by-side batch: half the clock's speed while two run. Call it
        whenever a batch begins or ends, before counting that."""
        if now > self._shares_at_ms:
            passed, running = now - self._shares_at_ms, len(self.expected_end_ms)
            if running:
                self._busy_ms += passed
            self._shares_ms += passed / (running or 1)
            self._shares_at_ms = now
        return self._shares_ms

    def was_busy(self, milliseconds: float) -> None:
        """Add busy time that was not counted while it passed."""
        self._busy_ms += milliseconds

    def busy_ms(self, now: float) -> float:
        """Return the total time with a batch in flight."""
        return self._busy_ms + (max(0.0, now - self._shares_at_ms) if self.expected_end_ms else 0.0)


@dataclass(slots=True, eq=False)
class Runner:
    """One network on one device.

    save_curve: saves its latency curve for the next start. reopen: reopens the backend; None if impossible.
    calibrate: measures the curve of another backend for the same network within device leases; returns it and
    a function to save it. running: batches in flight. in_flight: positions of the batches of the device's
    threads. stuck: given-up calls that have not returned. failures: consecutive failures. out_reason: why it
    is excluded; empty while in use. out_since: start of the exclusion in seconds of the Unix epoch.
    probe_at_ms: time of the next probe. recent: positions and milliseconds of recent batches.
    """

    device: Device
    backend: Backend
    policy: BatchPolicy
    save_curve: Callable[[], None]
    reopen: Callable[[], Backend] | None = None
    calibrate: Calibrate | None = None
    running: int = 0
    in_flight: list[int] = field(default_factory=list)
    stuck: int = 0
    failures: int = 0
    out_reason: str = ""
    out_since: float = 0.0
    probe_at_ms: float = 0.0
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))

    @property
    def model(self) -> LatencyModel:
        return self.policy.model

    @property
    def in_use(self) -> bool:
        """True if it gets work."""
        return not self.out_reason

    @property
    def free(self) -> bool:
        """True if no call is inside the backend."""
        return not self.running and not self.stuck

    def stuck_inside(self, calls: int) -> None:
        """Add to the number of given-up calls inside the backend; negative if some have returned."""
        self.stuck += calls
        self.device.stuck += calls

    def ran(self, positions: int, milliseconds: float) -> None:
        """Record a batch. milliseconds: device time of this batch alone."""
        self.device.last_batch = positions, milliseconds
        self.recent.append(self.device.last_batch)

    def may_share(self, batches: Iterable[int]) -> bool:
        """Return True if some of these batches may have run side by side, so that their times are not their
        own. batches: positions of each."""
        return any(self.backend.computes_beside(positions) for positions in batches)

    def learn(self, positions: int, milliseconds: float, *, busy: bool) -> bool:
        """Update the model with a batch. Return True if clients should know: the curve is complete.

        busy: other programs kept the machine busy.
        """
        model = self.policy.model
        if positions > self.backend.max_batch:
            return False
        complete = model.observe(positions, milliseconds, busy=busy) and model.known
        if complete:
            log.info("%s: latency curve known, measured %s", self.device.name, model.extent)
        return complete

    def knows_enough(self, queued: int) -> bool:
        """Return True if the device needs no notice of queued positions. It is fully busy, or a thread will
        check the queues soon enough after the batch in flight."""
        device = self.device
        if self.running >= self.backend.max_in_flight:
            return True
        if self.backend.side_by_side or not device.expected_end_ms or device.looks_at_ms is None:
            return False
        at_ms = self.policy.second_at_ms(queued, max(device.expected_end_ms))
        slack_ms = EARLY_ENOUGH * self.model.milliseconds(queued)
        return at_ms is not None and at_ms >= device.looks_at_ms - slack_ms


def evaluate(backend: Backend, parts: Sequence[PositionBatch]) -> EvaluationBatch:
    """Evaluate the parts as one batch, in pieces if it is larger than the backend accepts. Raises
    BackendError, including NotFiniteError."""
    if len(parts) == 1:
        count, moves = len(parts[0].positions), len(parts[0].moves)
    else:
        count, moves = sum([len(part.positions) for part in parts]), sum([len(part.moves) for part in parts])
    most = backend.max_batch
    if count > most:
        whole = PositionBatch.concatenate(parts)
        pieces = [whole.slice(start, min(start + most, count)) for start in range(0, count, most)]
        return EvaluationBatch.concatenate([evaluate(backend, [piece]) for piece in pieces])
    evaluation = backend.evaluate(parts[0]) if len(parts) == 1 else backend.evaluate_parts(parts)
    if (
        evaluation.logits.shape != (moves,)
        or evaluation.wdl.shape != (count, 3)
        or evaluation.moves_left.shape != (count,)
    ):
        raise BackendError(f"{backend.name} answered with arrays of another size")
    if not backend.finite and not _finite(evaluation):
        raise NotFiniteError(f"{backend.name} gave NaN or infinity")
    return evaluation


def _finite(evaluation: EvaluationBatch) -> bool:
    # A sum with a NaN or infinity is not finite, and is cheaper than checking each element.
    with np.errstate(all="ignore"):
        total = evaluation.logits.sum() + evaluation.wdl.sum() + evaluation.moves_left.sum()
    return math.isfinite(float(total))


def new_runner(
    device: Device,
    backend: Backend,
    model: LatencyModel,
    targets: LatencyTargets,
    save_curve: Callable[[], None],
    reopen: Callable[[], Backend] | None = None,
    calibrate: Calibrate | None = None,
) -> Runner:
    """Return a runner for a network's backend on a device, with its own batching policy."""
    device.threads = max(device.threads, backend.max_in_flight)
    policy = BatchPolicy(model, targets, backend.side_by_side)
    return Runner(device, backend, policy, save_curve, reopen, calibrate)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices, and the networks that run on each: how busy they are, and when the next batch may begin.

Plain data with the rules that follow from it; the threads are the dispatcher's (dispatcher.py).
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

from evaluator.backends.base import Backend, BackendError, NotFiniteError
from evaluator.device_lease import DeviceLease
from evaluator.scheduling.batching import BatchPolicy, LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger("evaluator.calibration")

RECENT_BATCHES = 256
"""How many of the last batches of a network on a device are remembered."""

EARLY_ENOUGH = 0.1
"""A thread is not woken to launch a batch earlier by less than this share of the batch's time."""


Calibrate: TypeAlias = Callable[[Backend, DeviceLease], tuple[LatencyModel, Callable[[], None]]]


def now_ms() -> float:
    """The time on the service's clock, which is monotonic, in milliseconds."""
    return time.monotonic() * 1000.0


@dataclass(slots=True, eq=False)
class Device:
    """One device: its threads run one batch each at a time.

    expected_end_ms: when the batches now running should end. last_end_ms: when the last one did. looks_at_ms:
    when a thread that waits will look at the queue again by itself. stuck: calls that were given up and have
    not returned, of all networks. last_batch: positions and milliseconds of the last one. direct: a thread
    runs batches by itself, which are not among the others (Dispatcher.begin_directly). reserved: no batch may
    begin, as the device is measured (tuning.py); reserved_ms: for how long it was so last, until
    reserved_end_ms. tuning: what is being measured, in words. trial_end_ms: when it last tried a batch size
    (trials.py), or was first used.
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
    _shares_ms: float = 0.0
    _shares_at_ms: float = 0.0
    _busy_ms: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether batches run, or may begin at any time without being announced."""
        return bool(self.expected_end_ms) or self.direct

    def share_ms(self, now: float) -> float:
        """The time that has passed for each of the batches that compute side by side: half as fast as the
        clock while there are two. To be called whenever one begins or ends, before it is counted."""
        if now > self._shares_at_ms:
            passed, running = now - self._shares_at_ms, len(self.expected_end_ms)
            if running:
                self._busy_ms += passed
            self._shares_ms += passed / (running or 1)
            self._shares_at_ms = now
        return self._shares_ms

    def was_busy(self, milliseconds: float) -> None:
        """Note work that was not counted while it went on."""
        self._busy_ms += milliseconds

    def busy_ms(self, now: float) -> float:
        """For how long it has had a batch in flight, in all."""
        return self._busy_ms + (max(0.0, now - self._shares_at_ms) if self.expected_end_ms else 0.0)


@dataclass(slots=True, eq=False)
class Runner:
    """One network on one device.

    save_curve: keeps its latency curve for the next start. reopen: opens the backend anew, None where that is
    not possible. calibrate: measures the curve of another backend for the same network, in slices of the
    device's time; it comes with what keeps it. running: batches in flight. in_flight: positions of those of
    the device's threads. stuck: calls that were given up and have not returned. failures: in a row.
    out_reason: why it is left out, empty while it is in use; out_since: since when, in seconds of the Unix
    epoch. probe_at_ms: when it is tried again. recent: positions and milliseconds of the last batches.
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
        """Whether it is given work."""
        return not self.out_reason

    @property
    def free(self) -> bool:
        """Whether nothing is inside the backend."""
        return not self.running and not self.stuck

    def stuck_inside(self, calls: int) -> None:
        """So many more calls were given up inside the backend; fewer, if some have returned."""
        self.stuck += calls
        self.device.stuck += calls

    def ran(self, positions: int, milliseconds: float) -> None:
        """Note a batch. milliseconds: that the device spent on it alone."""
        self.device.last_batch = positions, milliseconds
        self.recent.append(self.device.last_batch)

    def may_share(self, batches: Iterable[int]) -> bool:
        """Whether one of some batches, of so many positions each, may have computed at the same time as the
        others. What they took then says nothing of what each takes."""
        return any(self.backend.computes_beside(positions) for positions in batches)

    def learn(self, positions: int, milliseconds: float, *, disturbed: bool) -> None:
        """Have the model learn from a batch. disturbed: other programs kept the machine busy meanwhile."""
        if positions <= self.backend.max_batch:
            was_known = self.model.known
            self.model.observe(positions, milliseconds, disturbed=disturbed)
            if self.model.known and not was_known:
                log.info("%s: latency curve known, measured %s", self.device.name, self.model.extent)

    def leave_out(self, reason: str, probe_at_ms: float) -> None:
        """Give it no work until `take_back`. reason: the rest of a sentence about the device."""
        if self.in_use:
            self.out_since = time.time()
        self.out_reason = reason
        self.probe_at_ms = probe_at_ms

    def take_back(self) -> None:
        """Give it work again."""
        self.failures = 0
        self.out_reason = ""

    def knows_enough(self, queued: int) -> bool:
        """Whether it is no news for the device that so many positions are queued: it has its hands full, or a
        thread that waits for the batch in flight to end will look at the queue early enough."""
        device = self.device
        if self.running >= self.backend.max_in_flight:
            return True
        if self.backend.side_by_side or not device.expected_end_ms or device.looks_at_ms is None:
            return False
        at_ms = self.policy.second_at_ms(queued, max(device.expected_end_ms))
        slack_ms = EARLY_ENOUGH * self.model.milliseconds(queued)
        return at_ms is not None and at_ms >= device.looks_at_ms - slack_ms


def evaluate_parts(backend: Backend, parts: Sequence[PositionBatch]) -> EvaluationBatch:
    """Evaluate the parts as one batch and check what comes back. Raises BackendError, among them
    NotFiniteError."""
    count = sum(len(part.positions) for part in parts)
    evaluation = backend.evaluate_parts(parts)
    if (
        evaluation.logits.shape != (sum(len(part.moves) for part in parts),)
        or evaluation.wdl.shape != (count, 3)
        or evaluation.moves_left.shape != (count,)
    ):
        raise BackendError(f"{backend.name} answered with arrays of another size")
    if not backend.finite and not _finite(evaluation):
        raise NotFiniteError(f"{backend.name} gave NaN or infinity")
    return evaluation


def evaluate_in_pieces(backend: Backend, parts: Sequence[PositionBatch]) -> EvaluationBatch:
    """The same for a batch that was cut for another backend, and may be larger than this one takes."""
    most = backend.max_batch
    count = sum(len(part.positions) for part in parts)
    if count <= most:
        return evaluate_parts(backend, parts)
    whole = PositionBatch.concatenate(parts)
    pieces = [whole.slice(start, min(start + most, count)) for start in range(0, count, most)]
    return EvaluationBatch.concatenate([evaluate_parts(backend, [piece]) for piece in pieces])


def _finite(evaluation: EvaluationBatch) -> bool:
    # A sum with a NaN or an infinity in it is not finite; summing is cheaper than looking at each.
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
    """A network's backend on a device, with a policy of its own."""
    device.threads = max(device.threads, backend.max_in_flight)
    policy = BatchPolicy(model, targets, backend.side_by_side)
    return Runner(device, backend, policy, save_curve, reopen, calibrate)

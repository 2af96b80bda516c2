"""What the service knows of its devices and networks: which runs on which, and what came of it.

Plain data with the rules that follow from it; the threads are the dispatcher's (dispatcher.py).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evaluator.backends.base import Backend, BackendError, NotFiniteError
from evaluator.scheduling.batching import BatchPolicy, LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.scheduler import Scheduler, Segment
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.messages import NetworkInfo

EARLY_ENOUGH = 0.1
"""A thread is not woken to launch a batch earlier by less than this share of the batch's time."""


def now_ms() -> float:
    """The time on the service's clock, which is monotonic, in milliseconds."""
    return time.monotonic() * 1000.0


@dataclass(slots=True, eq=False)
class Device:
    """One device: its threads run one batch each at a time.

    expected_end_ms: when the batches now running should end. last_end_ms: when the last one did. looks_at_ms:
    when a thread that waits will look at the queue again by itself.
    """

    name: str
    threads: int = 1
    expected_end_ms: list[float] = field(default_factory=list)
    last_end_ms: float = 0.0
    looks_at_ms: float | None = None
    _shares_ms: float = 0.0
    _shares_at_ms: float = 0.0

    def share_ms(self, now: float) -> float:
        """The time that has passed for each of the batches that compute side by side: half as fast as the
        clock while there are two. To be called whenever one begins or ends, before it is counted."""
        self._shares_ms += max(0.0, now - self._shares_at_ms) / max(1, len(self.expected_end_ms))
        self._shares_at_ms = max(now, self._shares_at_ms)
        return self._shares_ms


@dataclass(slots=True, eq=False)
class Runner:
    """One network on one device. save_curve: keeps its latency curve for the next start."""

    device: Device
    backend: Backend
    policy: BatchPolicy
    save_curve: Callable[[], None]
    running: int = 0
    failures: int = 0
    left_out_until_ms: float = -1.0

    @property
    def model(self) -> LatencyModel:
        return self.policy.model

    def knows_enough(self, queued: int) -> bool:
        """Whether it is no news for the device that so many positions are queued: it has its hands full, or a
        thread that waits for the batch under way to end will look at the queue early enough."""
        device = self.device
        if self.running >= self.backend.max_in_flight:
            return True
        if self.backend.side_by_side or not device.expected_end_ms or device.looks_at_ms is None:
            return False
        at_ms = self.policy.second_at_ms(queued, max(device.expected_end_ms))
        slack_ms = EARLY_ENOUGH * self.model.milliseconds(queued)
        return at_ms is not None and at_ms >= device.looks_at_ms - slack_ms


@dataclass(slots=True, eq=False)
class Job:
    """Positions on their way through a device. tried: the devices that failed on them. began_share_ms: the
    device's share_ms when it began."""

    network: ServedNetwork
    segments: list[Segment]
    positions: int
    tried: list[Device] = field(default_factory=list)
    began_share_ms: float = 0.0


@dataclass(slots=True, eq=False)
class ServedNetwork:
    """A network that takes requests, on one or more devices.

    fallback: opens the backend of last resort; None if there is none. targets: of its policies.
    """

    info: NetworkInfo
    runners: list[Runner]
    fallback: Callable[[], Backend] | None = None
    scheduler: Scheduler = field(default_factory=Scheduler)
    retries: list[Job] = field(default_factory=list)
    closing: bool = False
    _fallback_backend: Backend | None = None
    _fallback_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        running = any(runner.running for runner in self.runners)
        return not len(self.scheduler) and not self.retries and not running

    def runner_on(self, device: Device, now: float) -> Runner | None:
        """What runs the network on a device: None while that device is left out and another is not."""
        own = None
        others = False
        for runner in self.runners:
            if runner.device is device:
                own = runner
            elif runner.left_out_until_ms <= now:
                others = True
        if own is not None and own.left_out_until_ms > now and others:
            return None
        return own

    def next_to_try(self, job: Job, now: float) -> Runner | None:
        """The runner of a device in use that has not failed on the job yet."""
        for runner in self.runners:
            if runner.device not in job.tried and runner.left_out_until_ms <= now:
                return runner
        return None

    def current_info(self) -> NetworkInfo:
        """The network's description with the curve as corrected since it was measured. The recommended batch
        does not follow other work on the machine: see LatencyModel.knee."""
        model = self.runners[0].model
        return replace(self.info, recommended_batch=model.knee, curve=model.curve())

    def evaluate_by_fallback(self, batch: PositionBatch) -> EvaluationBatch:
        """Evaluate with the backend of last resort. Raises BackendError when there is none or it fails."""
        with self._fallback_lock:
            if self._fallback_backend is None:
                if self.fallback is None:
                    raise BackendError(f"network {self.info.name} has no fallback backend")
                self._fallback_backend = self.fallback()
            most = self._fallback_backend.max_batch
            pieces = [
                evaluate_parts(self._fallback_backend, [batch.slice(start, min(start + most, len(batch)))])
                for start in range(0, len(batch), most)
            ]
        return EvaluationBatch.concatenate(pieces)

    def close(self) -> None:
        """Free the devices."""
        for runner in self.runners:
            runner.save_curve()
            runner.backend.close()
        if self._fallback_backend is not None:
            self._fallback_backend.close()


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
) -> Runner:
    """A network's backend on a device, with a policy of its own."""
    device.threads = max(device.threads, backend.max_in_flight)
    return Runner(device, backend, BatchPolicy(model, targets, backend.side_by_side), save_curve)

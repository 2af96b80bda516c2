"""A network that takes requests: where it runs, what is queued for it, and what becomes of failures.

Plain data with the rules that follow from it; the threads are the dispatcher's (dispatcher.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from evaluator.backends.base import Backend, BackendError
from evaluator.scheduling.requests import Segment
from evaluator.scheduling.runners import Device, Runner, evaluate_parts
from evaluator.scheduling.scheduler import Scheduler
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.messages import NetworkInfo


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

"""Devices and their worker threads: taking batches off the queues, running them, and surviving failures.

A `Dispatcher` holds the served networks and one or more threads per device. Its one lock guards queues,
policies and counters; it is never held while a device computes. What is finished goes to the service through
`post`, called from the worker threads.

When a device fails on a batch, the batch goes to another device that holds the network, else to the fallback
backend. A device that fails MAX_FAILURES times in a row is left out for RETRY_S seconds. Output that is not
finite counts as a failure of that batch alone.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evaluator.backends.base import Backend, BackendError, NotFiniteError
from evaluator.batching import BatchPolicy, LatencyTargets, Launch
from evaluator.latency import LatencyModel
from evaluator.metrics import Metrics
from evaluator.parts import cut, joined
from evaluator.scheduler import Request, Scheduler, Segment, distribute, parts_of
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import DeviceFailed, Overloaded, RemoteError
from protocol.messages import NetworkInfo

log = logging.getLogger("evaluator.devices")

MAX_FAILURES = 3
"""Failures in a row after which a device is left out."""

RETRY_S = 30.0
"""Seconds after which a device that was left out is tried again."""

Post = Callable[[Sequence[tuple[Request, RemoteError | None]]], None]
"""Takes finished requests: with their evaluation in `parts`, or the error."""


def now_ms() -> float:
    """The service's clock."""
    return time.monotonic() * 1000.0


@dataclass(slots=True, eq=False)
class Device:
    """One device: its threads run one batch each at a time.

    expected_end_ms: when the batches now running should end. last_end_ms: when the last one did.
    """

    name: str
    threads: int = 1
    expected_end_ms: list[float] = field(default_factory=list)
    last_end_ms: float = 0.0
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


@dataclass(slots=True, eq=False)
class ServedNetwork:
    """A network that takes requests, on one or more devices.

    fallback: opens the backend of last resort; None if there is none. targets: of its policies.
    """

    info: NetworkInfo
    runners: list[Runner]
    fallback: Callable[[], Backend] | None = None
    scheduler: Scheduler = field(default_factory=Scheduler)
    retries: list[_Job] = field(default_factory=list)
    closing: bool = False
    _fallback_backend: Backend | None = None
    _fallback_lock: threading.Lock = field(default_factory=threading.Lock)

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
                _checked(self._fallback_backend, [cut(batch, start, min(start + most, len(batch)))])
                for start in range(0, len(batch), most)
            ]
        return EvaluationBatch(
            np.concatenate([piece.logits for piece in pieces]),
            np.concatenate([piece.wdl for piece in pieces]),
            np.concatenate([piece.moves_left for piece in pieces]),
        )

    def close(self) -> None:
        """Free the devices."""
        for runner in self.runners:
            runner.save_curve()
            runner.backend.close()
        if self._fallback_backend is not None:
            self._fallback_backend.close()


@dataclass(slots=True, eq=False)
class _Job:
    network: ServedNetwork
    segments: list[Segment]
    positions: int
    tried: list[Device] = field(default_factory=list)
    began_share_ms: float = 0.0


class Dispatcher:
    """The served networks and the threads that run them.

    post: see Post. max_queue: positions queued per network; max_client_queue: of one client.
    """

    def __init__(self, post: Post, metrics: Metrics, *, max_queue: int, max_client_queue: int) -> None:
        self._post = post
        self._metrics = metrics
        self._max_queue = max_queue
        self._max_client_queue = max_client_queue
        self._changed = threading.Condition()
        self._networks: list[ServedNetwork] = []
        self._threads: list[threading.Thread] = []
        self._devices: list[Device] = []
        self._queued_of: dict[Hashable, int] = {}
        self._unannounced = False
        self._stopping = False

    # -- networks --------------------------------------------------------------------------------------

    def add(self, network: ServedNetwork) -> None:
        """Serve a network. Starts the threads of devices not seen before."""
        with self._changed:
            self._networks.append(network)
            for runner in network.runners:
                device = runner.device
                if device not in self._devices:
                    self._devices.append(device)
                    for index in range(device.threads):
                        thread = threading.Thread(
                            target=self._work, args=(device,), name=f"{device.name}-{index}", daemon=True
                        )
                        self._threads.append(thread)
                        thread.start()
            self._changed.notify_all()

    def retire(self, network: ServedNetwork) -> None:
        """Stop serving a network: what is queued is still run, then its devices are freed. Blocks."""
        with self._changed:
            network.closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping or _idle(network))
            if network in self._networks:
                self._networks.remove(network)
        network.close()

    def stop(self) -> None:
        """End the threads after the batches now running, drop the rest and free the devices."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for network in self._networks:
            network.close()
        self._networks.clear()

    # -- requests --------------------------------------------------------------------------------------

    def submit(self, network: ServedNetwork, request: Request) -> None:
        """Queue a request; the devices hear of it with the next `announce`. Raises Overloaded when the queue,
        or the client's share of it, is full."""
        with self._changed:
            queued = network.scheduler.positions
            if queued + request.count > self._max_queue:
                raise Overloaded(f"{queued} positions are queued; try again later")
            mine = self._queued_of.get(request.client, 0)
            if mine + request.count > self._max_client_queue:
                raise Overloaded(f"{mine} positions of this client are queued; keep fewer in flight")
            self._queued_of[request.client] = mine + request.count
            network.scheduler.add(request)
            for runner in network.runners:
                runner.policy.arrived(request.client, request.count, request.rank, request.arrived_ms)
            self._unannounced = True

    def announce(self) -> None:
        """Let the devices look at what was queued, once for all requests that came together: each look takes
        the interpreter from the I/O thread."""
        if self._unannounced:
            with self._changed:
                self._unannounced = False
                self._changed.notify_all()

    def cancel(self, network: ServedNetwork, request: Request) -> bool:
        """Drop a request; False when it is answered already. What runs of it runs on, unreported."""
        with self._changed:
            if request.closed:
                return False
            network.scheduler.remove(request)
            self._release(request)
            return True

    def remove_client(self, client: Hashable) -> None:
        """Drop everything a client has queued."""
        with self._changed:
            for network in self._networks:
                network.scheduler.remove_client(client)
                for runner in network.runners:
                    runner.policy.forget(client)
            self._queued_of.pop(client, None)

    def expire(self) -> list[Request]:
        """Take out and return the requests whose deadline has passed."""
        expired = []
        with self._changed:
            for network in self._networks:
                expired += network.scheduler.expire(now_ms())
            for request in expired:
                self._release(request)
        return expired

    def next_deadline_ms(self) -> float | None:
        """When `expire` will next have something to do."""
        with self._changed:
            deadlines = [network.scheduler.next_deadline_ms() for network in self._networks]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def queued_positions(self) -> int:
        """Positions waiting, of all networks."""
        with self._changed:
            return sum(network.scheduler.positions for network in self._networks)

    def device_memory(self) -> dict[str, dict[str, int]]:
        """By device: "used" and "total" bytes, of those that say it."""
        with self._changed:
            runners = [runner for network in self._networks for runner in network.runners]
        known = {runner.device.name: runner.backend.memory() for runner in runners}
        return {name: {"used": each[0], "total": each[1]} for name, each in known.items() if each is not None}

    def info(self, network: ServedNetwork) -> NetworkInfo:
        """A network as it is now, its curve corrected."""
        with self._changed:
            return network.current_info()

    # -- the worker threads ----------------------------------------------------------------------------

    def _work(self, device: Device) -> None:
        while True:
            with self._changed:
                while True:
                    if self._stopping:
                        return
                    job, runner, again_ms = self._choose(device)
                    if job is not None:
                        break
                    self._changed.wait(None if again_ms is None else max(0.0, again_ms - now_ms()) / 1000)
                assert runner is not None
                runner.running += 1
                now = now_ms()
                job.began_share_ms = device.share_ms(now)
                expected = max(now, device.last_end_ms) + runner.model.milliseconds(job.positions)
                device.expected_end_ms.append(expected)
            try:
                self._run(job, runner)
            finally:
                with self._changed:
                    runner.running -= 1
                    device.share_ms(now_ms())
                    device.expected_end_ms.remove(expected)
                    self._changed.notify_all()

    def _choose(self, device: Device) -> tuple[_Job | None, Runner | None, float | None]:
        """The next job for a device, with its runner; else when to look again."""
        now = now_ms()
        again: float | None = None
        waiting: list[tuple[tuple[int, float], int, ServedNetwork, Runner]] = []
        for index, network in enumerate(self._networks):
            runner = _runner(network, device, now)
            if runner is None or runner.running >= runner.backend.max_in_flight:
                continue
            for job in network.retries:
                if device not in job.tried or _next_to_try(network, job, now) is None:
                    network.retries.remove(job)
                    return job, runner, None
            urgency = network.scheduler.urgency(now)
            if urgency is not None:
                waiting.append((urgency, index, network, runner))
        waiting.sort(key=lambda entry: entry[:2])
        busy_until = max(device.expected_end_ms, default=None)
        for _, _, network, runner in waiting:
            pending = network.scheduler.pending(now, runner.policy.largest_batch)
            # Side by side, a batch does not wait for the one under way to end: there is a part left for it.
            busy = None if runner.backend.side_by_side else busy_until
            decision = runner.policy.decide(pending, now, busy)
            if isinstance(decision, Launch):
                segments = network.scheduler.take(decision.positions, now)
                return _Job(network, segments, sum(s.stop - s.start for s in segments)), runner, None
            again = decision.until_ms if again is None else min(again, decision.until_ms)
        return None, None, again

    def _run(self, job: _Job, runner: Runner) -> None:
        parts = parts_of(job.segments)
        start = now_ms()
        evaluation: EvaluationBatch | None = None
        error: RemoteError | None = None
        try:
            if runner.device not in job.tried and runner.left_out_until_ms <= start:
                evaluation = _checked(runner.backend, parts)
                runner.failures = 0
        except NotFiniteError:
            runner.failures = 0
            self._metrics.count("not_finite")
            log.warning(
                "%s: %s gave NaN or infinity; evaluating again with the fallback",
                runner.device.name,
                runner.backend.name,
            )
        except Exception as failure:  # whatever a device does, the service goes on
            if self._failed(job, runner, failure):
                return
        healthy = evaluation is not None
        if evaluation is None:
            evaluation, error = self._fall_back(job, joined(parts))
        end = now_ms()
        finished: list[tuple[Request, RemoteError | None]] = []
        with self._changed:
            elapsed = end - max(start, runner.device.last_end_ms)
            if runner.backend.side_by_side:
                elapsed = runner.device.share_ms(end) - job.began_share_ms
            runner.device.last_end_ms = end
            if healthy:
                runner.model.observe(job.positions, elapsed)
            for segment in job.segments:
                request = segment.request
                request.compute_ms += end - start
                request.largest_batch = max(request.largest_batch, job.positions)
            if evaluation is not None:
                finished = [(request, None) for request in distribute(job.segments, evaluation)]
            else:
                for segment in job.segments:
                    if not segment.request.closed:
                        job.network.scheduler.remove(segment.request)
                        finished.append((segment.request, error))
            for request, _ in finished:
                self._release(request)
                for each in job.network.runners:
                    each.policy.replied(request.client, end)
        self._metrics.batch(job.positions, end - start)
        if finished:
            self._post(finished)

    def _failed(self, job: _Job, runner: Runner, failure: Exception) -> bool:
        """Note a failure; True when another device takes the job over."""
        self._metrics.count("device_failures")
        name = runner.device.name
        log.warning("%s: %s failed on %d positions: %s", name, runner.backend.name, job.positions, failure)
        with self._changed:
            runner.failures += 1
            if runner.failures >= MAX_FAILURES:
                runner.left_out_until_ms = now_ms() + RETRY_S * 1000
                log.error("%s: failed %d times in a row, left out for %g s", name, MAX_FAILURES, RETRY_S)
            job.tried.append(runner.device)
            if _next_to_try(job.network, job, now_ms()) is None:
                return False
            job.network.retries.append(job)
            self._changed.notify_all()
            return True

    def _fall_back(
        self, job: _Job, batch: PositionBatch
    ) -> tuple[EvaluationBatch | None, RemoteError | None]:
        self._metrics.count("fallback_batches")
        try:
            return job.network.evaluate_by_fallback(batch), None
        except NotFiniteError:
            return None, DeviceFailed("the network's output for this request is not finite")
        except Exception as failure:  # the last resort failed too: its clients must hear of it
            log.error("the fallback failed: %s", failure)
            return None, DeviceFailed(f"no device could evaluate the request: {failure}")

    def _release(self, request: Request) -> None:
        left = self._queued_of.get(request.client, 0) - request.count
        if left > 0:
            self._queued_of[request.client] = left
        else:
            self._queued_of.pop(request.client, None)


def _runner(network: ServedNetwork, device: Device, now: float) -> Runner | None:
    """What runs a network on a device: nothing while it is left out and another device is not."""
    own = None
    others = False
    for runner in network.runners:
        if runner.device is device:
            own = runner
        elif runner.left_out_until_ms <= now:
            others = True
    if own is not None and own.left_out_until_ms > now and others:
        return None
    return own


def _next_to_try(network: ServedNetwork, job: _Job, now: float) -> Runner | None:
    """A device in use that has not failed on the job yet."""
    for runner in network.runners:
        if runner.device not in job.tried and runner.left_out_until_ms <= now:
            return runner
    return None


def _idle(network: ServedNetwork) -> bool:
    return (
        not len(network.scheduler)
        and not network.retries
        and not any(runner.running for runner in network.runners)
    )


def _checked(backend: Backend, parts: Sequence[PositionBatch]) -> EvaluationBatch:
    """Evaluate and check what comes back. Raises BackendError, among them NotFiniteError."""
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

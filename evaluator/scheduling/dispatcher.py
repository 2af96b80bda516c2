"""The worker threads: taking batches off the queues, running them on devices, and surviving failures.

A `Dispatcher` holds the served networks and one or more threads per device. Its one lock guards queues,
policies and counters; it is never held while a device computes. What is finished goes to the service through
`post`, called from the worker threads.

When a device fails on a batch, the batch goes to another device that holds the network, else to the fallback
backend. A device that fails MAX_FAILURES times in a row is left out for RETRY_S seconds. Output that is not
finite counts as a failure of that batch alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence

from evaluator.backends.base import NotFiniteError
from evaluator.metrics import Metrics
from evaluator.scheduling.admission import Admission, QueueLimits
from evaluator.scheduling.batching import Launch
from evaluator.scheduling.requests import Request, distribute, parts_of
from evaluator.scheduling.runners import Device, Runner, evaluate_parts, now_ms
from evaluator.scheduling.served_network import Job, ServedNetwork
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import DeviceFailed, RemoteError
from protocol.messages import NetworkInfo

log = logging.getLogger("evaluator.dispatcher")

MAX_FAILURES = 3
"""Failures in a row after which a device is left out."""

RETRY_S = 30.0
"""Seconds after which a device that was left out is tried again."""

Post = Callable[[Sequence[tuple[Request, RemoteError | None]]], None]
"""Takes finished requests: with their evaluation in `parts`, or the error."""


class Dispatcher:
    """The served networks and the threads that run them.

    post: see Post.
    """

    def __init__(self, post: Post, metrics: Metrics, limits: QueueLimits) -> None:
        self._post = post
        self._metrics = metrics
        self._admission = Admission(limits)
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        """Waited on by who retires a network."""
        self._networks: list[ServedNetwork] = []
        self._threads: list[threading.Thread] = []
        self._news: dict[Device, threading.Condition] = {}
        """Waited on by each device's threads."""
        self._unannounced = False
        self._stopping = False

    # -- networks --------------------------------------------------------------------------------------

    def add(self, network: ServedNetwork) -> None:
        """Serve a network. Starts the threads of devices not seen before."""
        with self._lock:
            self._networks.append(network)
            for runner in network.runners:
                device = runner.device
                if device not in self._news:
                    self._news[device] = threading.Condition(self._lock)
                    for index in range(device.threads):
                        thread = threading.Thread(
                            target=self._work, args=(device,), name=f"{device.name}-{index}", daemon=True
                        )
                        self._threads.append(thread)
                        thread.start()

    def retire(self, network: ServedNetwork) -> None:
        """Stop serving a network: what is queued is still run, then its devices are freed. Blocks."""
        with self._lock:
            network.closing = True
            self._idle.wait_for(lambda: self._stopping or network.idle)
            if network in self._networks:
                self._networks.remove(network)
        network.close()

    def stop(self) -> None:
        """End the threads after the batches now running, drop the rest and free the devices."""
        with self._lock:
            self._stopping = True
            self._idle.notify_all()
            for news in self._news.values():
                news.notify_all()
        for thread in self._threads:
            thread.join()
        for network in self._networks:
            network.close()
        self._networks.clear()

    # -- requests --------------------------------------------------------------------------------------

    def submit(self, network: ServedNetwork, request: Request) -> None:
        """Queue a request; the devices hear of it with the next `announce`. Raises Overloaded when its
        class's queue, or the client's share, is full."""
        with self._lock:
            self._admission.admit(request, network.scheduler)
            network.scheduler.add(request)
            for runner in network.runners:
                runner.policy.arrived(request.client, request.count, request.rank, request.arrived_ms)
            self._unannounced = True

    def announce(self) -> None:
        """Let the devices look at what was queued, once for all requests that came together, and only those
        for which it may be news: each look takes the interpreter from the I/O thread."""
        if not self._unannounced:
            return
        with self._lock:
            self._unannounced = False
            told = {
                runner.device
                for network in self._networks
                if network.scheduler.positions
                for runner in network.runners
                if not runner.knows_enough(network.scheduler.positions)
            }
            for device in told:
                self._news[device].notify()

    def cancel(self, network: ServedNetwork, request: Request) -> bool:
        """Drop a request; returns False when it is answered already. Positions of it that run already are
        evaluated to the end, and their results dropped."""
        with self._lock:
            if request.closed:
                return False
            network.scheduler.remove(request)
            self._admission.release(request)
            self._tell_idle()
            return True

    def remove_client(self, client: Hashable) -> None:
        """Drop everything a client has queued."""
        with self._lock:
            for network in self._networks:
                network.scheduler.remove_client(client)
                for runner in network.runners:
                    runner.policy.forget(client)
            self._admission.forget(client)
            self._tell_idle()

    def expire(self) -> list[Request]:
        """Take out and return the requests whose deadline has passed."""
        expired = []
        with self._lock:
            for network in self._networks:
                expired += network.scheduler.expire(now_ms())
            for request in expired:
                self._admission.release(request)
            if expired:
                self._tell_idle()
        return expired

    def next_deadline_ms(self) -> float | None:
        """The time at which `expire` will next have something to do, on the clock of now_ms."""
        with self._lock:
            deadlines = [network.scheduler.next_deadline_ms() for network in self._networks]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def queued_positions(self) -> int:
        """The number of positions that wait, of all networks."""
        with self._lock:
            return sum(network.scheduler.positions for network in self._networks)

    def device_memory(self) -> dict[str, dict[str, int]]:
        """The "used" and "total" bytes of each device that reports its memory."""
        with self._lock:
            runners = [runner for network in self._networks for runner in network.runners]
        known = {runner.device.name: runner.backend.memory() for runner in runners}
        return {name: {"used": each[0], "total": each[1]} for name, each in known.items() if each is not None}

    def info(self, network: ServedNetwork) -> NetworkInfo:
        """A network's description, its latency curve corrected by the batches since."""
        with self._lock:
            return network.current_info()

    # -- the worker threads ----------------------------------------------------------------------------

    def _work(self, device: Device) -> None:
        news = self._news[device]
        while True:
            with self._lock:
                while True:
                    if self._stopping:
                        return
                    job, runner, again_ms = self._choose(device)
                    if job is not None:
                        break
                    device.looks_at_ms = again_ms
                    news.wait(None if again_ms is None else max(0.0, again_ms - now_ms()) / 1000)
                    device.looks_at_ms = None
                assert runner is not None
                runner.running += 1
                if any(network.scheduler.positions or network.retries for network in self._networks):
                    news.notify()  # Another thread of this device may take the rest, now or when it is time.
                now = now_ms()
                job.began_share_ms = device.share_ms(now)
                expected = max(now, device.last_end_ms) + runner.model.milliseconds(job.positions)
                device.expected_end_ms.append(expected)
            try:
                self._run(job, runner)
            finally:
                with self._lock:
                    runner.running -= 1
                    device.share_ms(now_ms())
                    device.expected_end_ms.remove(expected)
                    self._tell_idle()

    def _choose(self, device: Device) -> tuple[Job | None, Runner | None, float | None]:
        """The next job for a device, with its runner; if there is none, when to look again."""
        now = now_ms()
        again: float | None = None
        waiting: list[tuple[tuple[int, float], int, ServedNetwork, Runner]] = []
        for index, network in enumerate(self._networks):
            runner = network.runner_on(device, now)
            if runner is None or runner.running >= runner.backend.max_in_flight:
                continue
            for job in network.retries:
                if device not in job.tried or network.next_to_try(job, now) is None:
                    network.retries.remove(job)
                    return job, runner, None
            urgency = network.scheduler.urgency()
            if urgency is not None:
                waiting.append((urgency, index, network, runner))
        waiting.sort(key=lambda entry: entry[:2])
        busy_until = max(device.expected_end_ms, default=None)
        for _, _, network, runner in waiting:
            pending = network.scheduler.pending(runner.policy.largest_batch)
            # Side by side, a batch does not wait for the one under way to end: there is a part left for it.
            busy = None if runner.backend.side_by_side else busy_until
            decision = runner.policy.decide(pending, now, busy)
            if isinstance(decision, Launch):
                segments = network.scheduler.take(decision.positions, now)
                job = Job(network, segments, sum(s.stop - s.start for s in segments))
                for each in self._networks:
                    each.scheduler.ran(
                        runner.model.milliseconds(job.positions), segments if each is network else ()
                    )
                return job, runner, None
            again = decision.until_ms if again is None else min(again, decision.until_ms)
        return None, None, again

    def _run(self, job: Job, runner: Runner) -> None:
        parts = parts_of(job.segments)
        start = now_ms()
        evaluation: EvaluationBatch | None = None
        error: RemoteError | None = None
        try:
            if runner.device not in job.tried and runner.left_out_until_ms <= start:
                evaluation = evaluate_parts(runner.backend, parts)
                runner.failures = 0
        except NotFiniteError:
            runner.failures = 0
            self._metrics.not_finite.add()
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
            evaluation, error = self._fall_back(job, PositionBatch.concatenate(parts))
        end = now_ms()
        finished: list[tuple[Request, RemoteError | None]] = []
        with self._lock:
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
                self._admission.release(request)
                for each in job.network.runners:
                    each.policy.replied(request.client, end)
        if evaluation is not None:
            self._metrics.batch(job.positions, (end - start) / 1000)
        if finished:
            self._post(finished)

    def _failed(self, job: Job, runner: Runner, failure: Exception) -> bool:
        """Note a failure; True when another device takes the job over."""
        self._metrics.device_failures.add()
        name = runner.device.name
        log.warning("%s: %s failed on %d positions: %s", name, runner.backend.name, job.positions, failure)
        with self._lock:
            runner.failures += 1
            if runner.failures >= MAX_FAILURES:
                runner.left_out_until_ms = now_ms() + RETRY_S * 1000
                log.error("%s: failed %d times in a row, left out for %g s", name, MAX_FAILURES, RETRY_S)
            job.tried.append(runner.device)
            if job.network.next_to_try(job, now_ms()) is None:
                return False
            job.network.retries.append(job)
            for other in job.network.runners:
                self._news[other.device].notify_all()
            return True

    def _fall_back(self, job: Job, batch: PositionBatch) -> tuple[EvaluationBatch | None, RemoteError | None]:
        self._metrics.fallback_batches.add()
        try:
            return job.network.evaluate_by_fallback(batch), None
        except NotFiniteError:
            return None, DeviceFailed("the network's output for this request is not finite")
        except Exception as failure:  # the last resort failed too: its clients must hear of it
            log.error("the fallback failed: %s", failure)
            return None, DeviceFailed(f"no device could evaluate the request: {failure}")

    def _tell_idle(self) -> None:
        if any(network.closing for network in self._networks):
            self._idle.notify_all()

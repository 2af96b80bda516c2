# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of the devices: they run batches and answer the requests, even if a device fails.

failover.py handles failed batches and devices. No exception ends a thread: its batch in flight is answered
with an error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from evaluator.devices.machine import OtherPrograms
from evaluator.devices.metrics import Metrics
from evaluator.devices.runners import Device, Runner, evaluate, now_ms
from evaluator.devices.running.failover import Attempt, DeviceFailover, Post, probe
from evaluator.devices.running.trials import next_trial, run_trial
from evaluator.devices.running.watchdog import Patience
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.scheduling.requests import Request, distribute, parts_of
from protocol.batch import EvaluationBatch
from protocol.errors import DeviceFailed, RemoteError

log = logging.getLogger("evaluator.workers")

FAULT_PAUSE_S = 1.0
"""Pause after an exception while choosing a batch, so that the thread does not spin."""

JOIN_S = 5.0
"""Time limit for a thread without a batch in flight to end."""

READ_MS = 1000.0
"""Interval between readings of the load of other programs."""

HURRY_S = 0.05
"""Interval at which `stop` polls the flag of `hurry`: a signal handler must not take a lock."""

Choice = tuple[Job | None, Runner | None, float | None]
"""The next job for a device and its runner; without a job, the time to check again."""


class Workers:
    """The threads that run a dispatcher's networks.

    lock: the dispatcher's; guards everything here. networks: its list of served networks. choose: removes the
    next batch for a device from the queues, with the lock held. post: see Post. patience, on_hung, on_moved:
    for `failover`.
    """

    def __init__(
        self,
        lock: threading.RLock,
        networks: list[ServedNetwork],
        choose: Callable[[Device, float], Choice],
        post: Post,
        metrics: Metrics,
        patience: Patience,
        on_hung: Callable[[str], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._networks = networks
        self._choose = choose
        self._post = post
        self._metrics = metrics
        self._on_moved = on_moved
        self.failover = DeviceFailover(
            lock,
            networks,
            post,
            metrics,
            patience,
            on_hung=on_hung,
            on_moved=on_moved,
            start=self.start,
            notify_all=self._notify_all,
            end=self._end,
        )
        self._others = OtherPrograms()
        self._read_again_ms = now_ms() + READ_MS
        self.idle = threading.Condition(lock)
        """Notified when work ends; for threads that retire a network, measure on a device, or end the
        threads."""
        self._conditions: dict[Device, threading.Condition] = {}
        """Wakes the threads of each device."""
        self._inside: dict[threading.Thread, Attempt | None] = {}
        self._batches = 0
        """Batches in flight that have not been given up."""
        self._stopping = False
        self._at_once = False

    # -- for the dispatcher ----------------------------------------------------------------------------

    def start(self, runner: Runner) -> None:
        """Start the threads of a device, unless they run. With the lock held."""
        device = runner.device
        device.tries_at_ms = 0.0
        if device in self._conditions:
            return
        self._conditions[device] = threading.Condition(self._lock)
        device.trial_end_ms = now_ms()
        for index in range(device.threads):
            thread = threading.Thread(
                target=self._work, args=(device,), name=f"{device.name}-{index}", daemon=True
            )
            self._inside[thread] = None
            thread.start()

    def notify(self, device: Device) -> None:
        """Wake a thread of a device to check the queues. With the lock held."""
        self._conditions[device].notify()

    def notify_idle(self) -> None:
        """Notify waiters of `idle` that a request left a queue or a batch ended. With the lock held."""
        waited_for = self._stopping
        for network in self._networks:
            waited_for |= network.closing
        for device in self._conditions:
            waited_for |= device.reserved
        if waited_for:
            self.idle.notify_all()

    def machine_is_busy(self, now: float) -> bool:
        """Return True if other programs keep the machine busy. With the lock held."""
        if now >= self._read_again_ms:
            self._read_again_ms = now + READ_MS
            self._others.read()
        return self._others.busy

    def wait_until_idle(self, network: ServedNetwork) -> None:
        """Wait until a network has nothing queued or running, or `stop` is called. With the lock held."""
        self.idle.wait_for(lambda: self._stopping or network.idle)

    def stop(self) -> None:
        """End the threads after the batches in flight are done or given up; after `hurry`, at once."""
        with self._lock:
            self._stopping = self.failover.stopping = True
            self._notify_all()
            self.idle.notify_all()
            while self._batches and not self._at_once:
                self.idle.wait(HURRY_S)
            self.failover.watchdog.stop()
            # Do not wait for hanging calls, which keep their threads, nor for probes, which take long.
            free = [thread for thread, attempt in self._inside.items() if attempt is None]
        for thread in free:
            thread.join(JOIN_S)

    def hurry(self) -> None:
        """Make `stop` not wait for the batches in flight. For signal handlers, too."""
        self._at_once = True

    # -- one thread ------------------------------------------------------------------------------------

    def _work(self, device: Device) -> None:
        thread = threading.current_thread()
        while True:
            attempt: Attempt | None = None
            try:
                with self._lock:
                    attempt = self._inside[thread] = self._next(device)
                if attempt is None:
                    return
                self._run(attempt)
            except BaseException as fault:  # without this thread the device would have none
                log.exception("%s: a batch was not finished", device.name)
                self._survive(device, attempt, fault)

    def _survive(self, device: Device, attempt: Attempt | None, fault: BaseException) -> None:
        try:
            with self._lock:
                if attempt is None:
                    self._conditions[device].wait(FAULT_PAUSE_S)
                    return
                self.failover.fail(
                    attempt.job, DeviceFailed(f"the evaluator could not finish the batch: {fault!r}")
                )
                self.failover.watchdog.done(attempt)
                self._end(attempt, now_ms())
        except BaseException:  # the watchdog handles the attempt when it is overdue
            log.exception("%s: a batch was not given up", device.name)

    def _next(self, device: Device) -> Attempt | None:
        """Wait for a job and start it. Returns None if the thread should end."""
        condition = self._conditions[device]
        while not self._stopping:
            now = now_ms()
            job, runner, again_ms = self._look(device, now)
            if job is not None and runner is not None:
                attempt = self._begin(job, runner, now)
                if device.threads > 1 and self._work_waits():
                    condition.notify()  # another thread of this device may take the rest, now or later
                return attempt
            device.looks_at_ms = again_ms
            condition.wait(None if again_ms is None else max(0.0, again_ms - now) / 1000)
            device.looks_at_ms = None
        return None

    def _work_waits(self) -> bool:
        """Return True if any request is queued or waits for a retry."""
        return any(network.scheduler.positions or network.retries for network in self._networks)

    def _look(self, device: Device, now: float) -> Choice:
        """Choose a device's next job: a retry, a probe if the device is excluded, or from the queues."""
        if device.reserved:
            return None, None, None
        probe_at_ms: float | None = None
        for network in self._networks:
            if network.whole and not network.retries:
                continue
            for runner in network.all_runners:
                if runner.device is not device:
                    continue
                if runner.in_use:
                    job = _job_to_retry(network, runner)
                    if job is not None:
                        self.failover.take(job)
                        return job, runner, None
                elif not runner.running and not device.stuck:
                    if runner.probe_at_ms <= now:
                        return Job(network, [], 0), runner, None
                    probe_at_ms = min(runner.probe_at_ms, probe_at_ms or runner.probe_at_ms)
        job, chosen, again_ms = self._choose(device, now)
        if job is None and again_ms is None and self._is_unknown(device):
            trial = (
                next_trial(self._networks, device, now) if now >= device.tries_at_ms else device.tries_at_ms
            )
            if isinstance(trial, tuple):
                network, runner, size = trial
                return Job(network, [], size), runner, None
            again_ms = trial
            device.tries_at_ms = trial or 0.0
        if again_ms is None or (probe_at_ms is not None and probe_at_ms < again_ms):
            again_ms = probe_at_ms
        return job, chosen, again_ms

    def _is_unknown(self, device: Device) -> bool:
        """Return True if sizes are left to measure on a device."""
        for network in self._networks:
            for runner in network.in_use:
                if runner.device is device and not runner.policy.model.known:
                    return True
        return False

    def _begin(self, job: Job, runner: Runner, now: float) -> Attempt:
        device = runner.device
        runner.in_flight.append(job.positions)
        job.began_share_ms = device.share_ms(now)
        ms = runner.policy.model.drain_ms(max(1, job.positions))
        # Running batches may have to end first.
        latest_ms = max([now, *device.expected_end_ms])
        places = _places(job, runner)
        attempt = Attempt(job, runner, places, (now if runner.backend.side_by_side else latest_ms) + ms)
        runner.running += places
        device.expected_end_ms.append(attempt.expected_end_ms)
        if job.positions:
            self._batches += 1
            job.began_ms = now if job.began_ms is None else job.began_ms
            patience, expected_ms = self.failover.patience, latest_ms - now + ms
            job.due_ms = job.began_ms + patience.answer_ms(expected_ms)
            self.failover.watchdog.watch(attempt, min(now + patience.batch_ms(expected_ms), job.due_ms))
        else:
            self.failover.watchdog.watch(attempt, now + 1000 * self.failover.patience.open_s)
        return attempt

    def _end(self, attempt: Attempt, now: float) -> None:
        """Note that a device is no longer busy with an attempt. With the lock held."""
        if not attempt.open:
            return
        attempt.open = False
        job, runner, device = attempt.job, attempt.runner, attempt.runner.device
        runner.running -= attempt.places
        runner.in_flight.remove(job.positions)
        device.share_ms(now)
        device.expected_end_ms.remove(attempt.expected_end_ms)
        if job.positions:
            self._batches -= 1
        if job.network.closed:
            job.network.close_left(runner)
        self.notify_idle()

    # -- one batch -------------------------------------------------------------------------------------

    def _run(self, attempt: Attempt) -> None:
        job, runner = attempt.job, attempt.runner
        start = now_ms()
        evaluation: EvaluationBatch | None = None
        failure: BaseException | None = None
        elapsed_ms, shared = 0.0, False
        try:
            if job.segments:
                evaluation = evaluate(runner.backend, parts_of(job.segments))
            elif job.positions:
                elapsed_ms = run_trial(runner, job.positions)
            else:
                probe(runner)
        except BaseException as error:  # any failure of a device must leave the service running
            failure = error
        finished: list[tuple[Request, RemoteError | None]] = []
        with self._lock:
            given_up = not self.failover.watchdog.done(attempt)
            if given_up and not self.failover.came_back(attempt, now_ms() - start, worked=failure is None):
                return
            if evaluation is not None:
                shared = given_up or self._shared(runner, start)
                elapsed_ms = self._complete(attempt, evaluation, start, now_ms(), finished)
            elif job.is_probe:
                self.failover.probed(attempt, failure)
            elif job.is_trial:
                shared = self._tried(attempt, start, failure)
            else:
                assert failure is not None
                self.failover.failed(attempt, failure)
        if finished:
            self._post(finished)
        # No client waits for the remaining work.
        with self._lock:
            now = now_ms()
            if elapsed_ms and not shared:
                self.learn(runner, job.positions, elapsed_ms)
            self._end(attempt, now)

    def learn(self, runner: Runner, positions: int, milliseconds: float) -> None:
        """Correct a runner's latency curve by a batch, and announce it once it is complete."""
        if runner.learn(positions, milliseconds, busy=self.machine_is_busy(now_ms())):
            self._on_moved()

    def _tried(self, attempt: Attempt, start: float, failure: BaseException | None) -> bool:
        """Note the end of a trial. Returns True if it is invalid because it shared the device."""
        job, runner, device = attempt.job, attempt.runner, attempt.runner.device
        if failure is not None:
            log.warning("%s: a trial of %d positions failed: %s", device.name, job.positions, failure)
            runner.model.refuse(job.positions)
        alone = len(device.expected_end_ms) == 1 and start >= device.last_end_ms
        device.trial_end_ms = device.last_end_ms = now_ms()
        return failure is not None or not alone

    def _shared(self, runner: Runner, start: float) -> bool:
        """Return True if a batch that began at `start` and has just ended may have shared the device. With
        the lock held."""
        device = runner.device
        if len(device.expected_end_ms) <= 1 and not device.stuck and start >= device.last_end_ms:
            return False
        last = [device.last_batch[0]] if device.last_batch is not None else []
        return runner.may_share([*runner.in_flight, *last])

    def _complete(
        self,
        attempt: Attempt,
        evaluation: EvaluationBatch,
        start: float,
        end: float,
        finished: list[tuple[Request, RemoteError | None]],
    ) -> float:
        """Assemble the answers. Returns the device time of this batch alone, in milliseconds."""
        job, runner = attempt.job, attempt.runner
        runner.failures = 0
        elapsed = end - max(start, runner.device.last_end_ms)
        if runner.backend.side_by_side:
            elapsed = runner.device.share_ms(end) - job.began_share_ms
        runner.device.last_end_ms = end
        runner.ran(job.positions, elapsed)
        for segment in job.segments:
            request = segment.request
            request.compute_ms += end - start
            request.largest_batch = max(request.largest_batch, job.positions)
        try:
            # Another device may have answered it in the meantime.
            segments, job.answered = [] if job.answered else job.segments, True
            for request in distribute(segments, evaluation):
                for each in job.network.all_runners:
                    each.policy.replied(request.client, end)
                finished.append((request, None))
        except Exception as fault:  # probably out of memory: the remaining requests get an error
            log.exception("%s: the answers of a batch could not be put together", runner.device.name)
            job.answered = False
            self.failover.fail(
                job, DeviceFailed(f"the evaluator could not put the answer together: {fault!r}")
            )
        network, device = job.network.info.name, runner.device.name
        self._metrics.batch(network, device, job.positions, (end - start) / 1000)
        if runner is job.network.standby:
            self._metrics.fallback_batches.add()
        return elapsed

    def _notify_all(self) -> None:
        for condition in self._conditions.values():
            condition.notify_all()


def _places(job: Job, runner: Runner) -> int:
    """Return how many batches a job counts as: a trial runs one per side-by-side slot, and a job that runs
    alone takes all places."""
    all_places = job.alone or (runner.backend.side_by_side and job.is_trial)
    return runner.backend.max_in_flight if all_places else 1


def _job_to_retry(network: ServedNetwork, runner: Runner) -> Job | None:
    """Return a job that failed on another device and may run on this one, or None."""
    if not network.retries or runner.running >= runner.backend.max_in_flight:
        return None
    for job in network.retries:
        if runner.device not in job.tried and (
            runner is not network.standby or network.next_to_try(job) is runner
        ):
            return job
    return None

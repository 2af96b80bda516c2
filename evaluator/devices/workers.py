# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of the devices: running batches, and answering for them whatever a device does.

What becomes of a batch and a device that fail is failover.py's. No exception ends a thread: what it had in
flight is answered with an error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from evaluator.devices.failover import Attempt, Failover, Post, probe
from evaluator.devices.machine import OtherPrograms
from evaluator.devices.runners import Device, Runner, evaluate_in_pieces, now_ms
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.devices.trials import next_trial, run_trial
from evaluator.devices.watchdog import Patience
from evaluator.metrics import Metrics
from evaluator.scheduling.requests import Request, distribute, parts_of
from protocol.batch import EvaluationBatch
from protocol.errors import DeviceFailed, RemoteError

log = logging.getLogger("evaluator.workers")

FAULT_PAUSE_S = 1.0
"""Pause of a thread that could not choose a batch, for a fault of ours: it must not spin."""

JOIN_S = 5.0
"""How long a thread that has nothing in flight may take to end."""

HURRY_S = 0.05
"""How often `stop` looks whether it is to hurry: a signal handler can set a flag, and take no lock."""

Choice = tuple[Job | None, Runner | None, float | None]
"""The next job for a device, with its runner; if there is none, when to look again."""


class Workers:
    """The threads that run a dispatcher's networks.

    lock: the dispatcher's, which guards everything here. networks: those served, its list. choose: takes the
    next batch for a device off the queues; closed: notes that a request is answered; both are called with the
    lock held. post: see Post. failover has what fails; patience, on_hung, on_moved: its own.
    """

    def __init__(
        self,
        lock: threading.RLock,
        networks: list[ServedNetwork],
        choose: Callable[[Device], Choice],
        closed: Callable[[Request, ServedNetwork], None],
        post: Post,
        metrics: Metrics,
        patience: Patience,
        on_hung: Callable[[str], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._networks = networks
        self._choose = choose
        self._closed = closed
        self._post = post
        self._metrics = metrics
        self.failover = Failover(
            lock,
            networks,
            closed,
            post,
            metrics,
            patience,
            on_hung=on_hung,
            on_moved=on_moved,
            start=self.start,
            notify_all=self._notify_all,
            end=self._end,
        )
        self.others = OtherPrograms()
        """What keeps the machine busy besides: read with the lock held."""
        self.idle = threading.Condition(lock)
        """Waited on by who retires a network, measures on a device, or ends the threads."""
        self._news: dict[Device, threading.Condition] = {}
        """Waited on by each device's threads."""
        self._inside: dict[threading.Thread, Attempt | None] = {}
        self._batches = 0
        """Running, neither ended nor given up."""
        self._stopping = False
        self._at_once = False

    # -- for the dispatcher ----------------------------------------------------------------------------

    def start(self, runner: Runner) -> None:
        """Start the threads of a device not seen before. With the lock held."""
        device = runner.device
        if device in self._news:
            return
        self._news[device] = threading.Condition(self._lock)
        device.trial_end_ms = now_ms()
        for index in range(device.threads):
            thread = threading.Thread(
                target=self._work, args=(device,), name=f"{device.name}-{index}", daemon=True
            )
            self._inside[thread] = None
            thread.start()

    def notify(self, device: Device) -> None:
        """Have a thread of a device look at the queues. With the lock held."""
        self._news[device].notify()

    def notify_idle(self) -> None:
        """Something was taken off a queue or ended: who waits for that looks again. With the lock held."""
        waited_for = any(network.closing for network in self._networks)
        if self._stopping or waited_for or any(device.reserved for device in self._news):
            self.idle.notify_all()

    def wait_until_idle(self, network: ServedNetwork) -> None:
        """Until nothing of a network is queued or running, or `stop` is called. With the lock held."""
        self.idle.wait_for(lambda: self._stopping or network.idle)

    def stop(self) -> None:
        """End the threads once the batches in flight are done or given up, or at once after `hurry`."""
        with self._lock:
            self._stopping = self.failover.stopping = True
            self._notify_all()
            self.idle.notify_all()
            while self._batches and not self._at_once:
                self.idle.wait(HURRY_S)
            self.failover.watchdog.stop()
            # A call that hangs keeps its thread, and a probe takes its time: neither is waited for.
            free = [thread for thread, attempt in self._inside.items() if attempt is None]
        for thread in free:
            thread.join(JOIN_S)

    def hurry(self) -> None:
        """Have `stop` not wait for the batches in flight. Also from a signal handler."""
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
            except BaseException as fault:  # a thread that ends would leave its device without one
                log.exception("%s: a batch was not finished", device.name)
                self._survive(device, attempt, fault)

    def _survive(self, device: Device, attempt: Attempt | None, fault: BaseException) -> None:
        try:
            with self._lock:
                if attempt is None:
                    self._news[device].wait(FAULT_PAUSE_S)
                    return
                self.failover.fail(
                    attempt.job, DeviceFailed(f"the evaluator could not finish the batch: {fault!r}")
                )
                self.failover.watchdog.done(attempt)
                self._end(attempt)
        except BaseException:  # what is left of it is the watchdog's
            log.exception("%s: a batch was not given up", device.name)

    def _next(self, device: Device) -> Attempt | None:
        """Wait for something to do; None when the thread is to end."""
        news = self._news[device]
        while not self._stopping:
            job, runner, again_ms = self._look(device)
            if job is not None and runner is not None:
                attempt = self._begin(job, runner)
                if self._work_waits():
                    news.notify()  # Another thread of this device may take the rest, now or when it is time.
                return attempt
            device.looks_at_ms = again_ms
            news.wait(None if again_ms is None else max(0.0, again_ms - now_ms()) / 1000)
            device.looks_at_ms = None
        return None

    def _work_waits(self) -> bool:
        """Whether anything is queued, or to be tried again."""
        return any(network.scheduler.positions or network.retries for network in self._networks)

    def _look(self, device: Device) -> Choice:
        """What a device is to do: what others failed on, a probe if it is left out, else from the queues."""
        if device.reserved:
            return None, None, None
        now = now_ms()
        probe_at_ms: float | None = None
        for network in self._networks:
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
        job, chosen, again_ms = self._choose(device)
        if job is None and again_ms is None:
            trial = next_trial(self._networks, device, now)
            if isinstance(trial, tuple):
                network, runner, size = trial
                return Job(network, [], size), runner, None
            again_ms = trial
        if again_ms is None or (probe_at_ms is not None and probe_at_ms < again_ms):
            again_ms = probe_at_ms
        return job, chosen, again_ms

    def _begin(self, job: Job, runner: Runner) -> Attempt:
        device, now = runner.device, now_ms()
        runner.running += _places(job, runner)
        runner.in_flight.append(job.positions)
        job.began_share_ms = device.share_ms(now)
        ms = runner.model.drain_ms(max(1, job.positions))
        # What runs already may have to end first.
        latest_ms = max(now, max(device.expected_end_ms, default=now))
        attempt = Attempt(job, runner, (now if runner.backend.side_by_side else latest_ms) + ms)
        device.expected_end_ms.append(attempt.expected_end_ms)
        if job.is_probe:
            self.failover.watchdog.watch(attempt, now + 1000 * self.failover.patience.open_s)
        else:
            self._batches += 1
            job.began_ms = now if job.began_ms is None else job.began_ms
            patience, expected_ms = self.failover.patience, latest_ms - now + ms
            job.due_ms = job.began_ms + patience.answer_ms(expected_ms)
            self.failover.watchdog.watch(attempt, min(now + patience.batch_ms(expected_ms), job.due_ms))
        return attempt

    def _end(self, attempt: Attempt) -> None:
        """Note that a device is not busy with an attempt any more. With the lock held."""
        if not attempt.open:
            return
        attempt.open = False
        device = attempt.runner.device
        attempt.runner.running -= _places(attempt.job, attempt.runner)
        attempt.runner.in_flight.remove(attempt.job.positions)
        device.share_ms(now_ms())
        device.expected_end_ms.remove(attempt.expected_end_ms)
        if not attempt.job.is_probe:
            self._batches -= 1
        attempt.job.network.close_left(attempt.runner)
        self.notify_idle()

    # -- one batch -------------------------------------------------------------------------------------

    def _run(self, attempt: Attempt) -> None:
        job, runner = attempt.job, attempt.runner
        start = now_ms()
        evaluation: EvaluationBatch | None = None
        failure: BaseException | None = None
        elapsed_ms, shared = 0.0, False
        try:
            if job.is_probe:
                probe(runner)
            elif job.is_trial:
                elapsed_ms = run_trial(runner, job.positions)
            else:
                evaluation = evaluate_in_pieces(runner.backend, parts_of(job.segments))
        except BaseException as error:  # whatever a device does, the service goes on
            failure = error
        finished: list[tuple[Request, RemoteError | None]] = []
        with self._lock:
            given_up = not self.failover.watchdog.done(attempt)
            if given_up and not self.failover.came_back(attempt, now_ms() - start, worked=failure is None):
                return
            if job.is_probe:
                self.failover.probed(attempt, failure)
            elif job.is_trial:
                shared = self._tried(attempt, start, failure)
            elif evaluation is None:
                assert failure is not None
                self.failover.failed(attempt, failure)
            else:
                shared = given_up or self._shared(runner, start)
                elapsed_ms = self._complete(attempt, evaluation, start, now_ms(), finished)
        self._post(finished)
        # Nobody waits for the rest.
        with self._lock:
            if elapsed_ms and not shared:
                runner.learn(job.positions, elapsed_ms, disturbed=self.others.busy)
            self._end(attempt)

    def _tried(self, attempt: Attempt, start: float, failure: BaseException | None) -> bool:
        """Note the end of a trial; returns whether it says nothing, as it did not have the device alone."""
        job, runner, device = attempt.job, attempt.runner, attempt.runner.device
        if failure is not None:
            log.warning("%s: a trial of %d positions failed: %s", device.name, job.positions, failure)
            runner.model.refuse(job.positions)
        alone = len(device.expected_end_ms) == 1 and start >= device.last_end_ms
        device.trial_end_ms = device.last_end_ms = now_ms()
        return failure is not None or not alone

    def _shared(self, runner: Runner, start: float) -> bool:
        """Whether a batch that began at `start`, and has just ended, may have had only a part of the device.
        With the lock held."""
        device = runner.device
        last = [device.last_batch[0]] if device.last_batch is not None else []
        overlapped = len(device.expected_end_ms) > 1 or device.stuck > 0 or start < device.last_end_ms
        return overlapped and runner.may_share([*runner.in_flight, *last])

    def _complete(
        self,
        attempt: Attempt,
        evaluation: EvaluationBatch,
        start: float,
        end: float,
        finished: list[tuple[Request, RemoteError | None]],
    ) -> float:
        """Put the answers together; returns the milliseconds that the device spent on the batch alone."""
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
            # Another device may have answered it meanwhile.
            segments, job.answered = [] if job.answered else job.segments, True
            for request in distribute(segments, evaluation):
                self._closed(request, job.network)
                finished.append((request, None))
        except Exception as fault:  # memory, most likely: those not put together are answered so
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
        for news in self._news.values():
            news.notify_all()


def _places(job: Job, runner: Runner) -> int:
    """How many batches a job counts as: a trial runs as many as compute side by side."""
    return runner.backend.max_in_flight if job.is_trial and runner.backend.side_by_side else 1


def _job_to_retry(network: ServedNetwork, runner: Runner) -> Job | None:
    """A job that another device failed on and this one may take."""
    if not network.retries or runner.running >= runner.backend.max_in_flight:
        return None
    for job in network.retries:
        if runner.device not in job.tried and (
            runner is not network.standby or network.next_to_try(job) is runner
        ):
            return job
    return None

"""The threads of the devices: running batches, and answering for them whatever a device does.

A batch that a device fails on goes to another one that holds the network, else to the network's standby: a
backend that is opened when it is first needed, and takes all requests while no device works. A device that
fails MAX_FAILURES times in a row, or inside which a call hangs (watchdog.py), is left out; it is tried again
with a probe, and opened anew if that fails. Output that is not finite is a failure of that batch alone.

No exception ends a thread: what it had under way is answered with an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.backends.base import NotFiniteError
from evaluator.backends.probe import probe_batch
from evaluator.metrics import Metrics
from evaluator.scheduling.requests import Request, distribute, parts_of
from evaluator.scheduling.runners import Device, Runner, evaluate_in_pieces, evaluate_parts, now_ms
from evaluator.scheduling.served_network import Job, ServedNetwork
from evaluator.scheduling.watchdog import Patience, Watchdog
from protocol.batch import EvaluationBatch
from protocol.errors import DeviceFailed, RemoteError

log = logging.getLogger("evaluator.workers")

MAX_FAILURES = 3
"""Failures in a row after which a device is left out."""

FAULT_PAUSE_S = 1.0
"""Pause of a thread that could not choose a batch, for a fault of ours: it must not spin."""

JOIN_S = 5.0
"""How long a thread that has nothing under way may take to end."""

HURRY_S = 0.05
"""How often `stop` looks whether it is to hurry: a signal handler can set a flag, and take no lock."""

Post = Callable[[Sequence[tuple[Request, RemoteError | None]]], None]
"""Takes finished requests: with their evaluation in `parts`, or the error. Does not raise."""

Choice = tuple[Job | None, Runner | None, float | None]
"""The next job for a device, with its runner; if there is none, when to look again."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A job on a device. expected_end_ms: when it should be done. open: its end has not been noted yet."""

    job: Job
    runner: Runner
    expected_end_ms: float
    open: bool = True


@dataclass(frozen=True, slots=True)
class Trouble:
    """A device that is left out: which, why (a sentence), and since when in seconds of the Unix epoch."""

    device: str
    reason: str
    since: float


class Workers:
    """The threads that run a dispatcher's networks.

    lock: the dispatcher's, which guards everything here. networks: those served, its list. choose: takes the
    next batch for a device off the queues; closed: notes that a request is answered; both are called with the
    lock held. post: see Post. patience: may be changed, with the lock held.
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
    ) -> None:
        self._lock = lock
        self._networks = networks
        self._choose = choose
        self._closed = closed
        self._post = post
        self._metrics = metrics
        self.patience = patience
        self._watchdog: Watchdog[Attempt | ServedNetwork] = Watchdog(lock, self._overdue)
        self._idle = threading.Condition(lock)
        """Waited on by who retires a network, or ends the threads."""
        self._news: dict[Device, threading.Condition] = {}
        """Waited on by each device's threads."""
        self._inside: dict[threading.Thread, Attempt | None] = {}
        self._batches = 0
        """Under way, neither ended nor given up."""
        self._stopping = False
        self._at_once = False
        self._well_since = time.time()

    # -- for the dispatcher ----------------------------------------------------------------------------

    def start(self, runner: Runner) -> None:
        """Start the threads of a device not seen before. With the lock held."""
        device = runner.device
        if device in self._news:
            return
        self._news[device] = threading.Condition(self._lock)
        for index in range(device.threads):
            thread = threading.Thread(
                target=self._work, args=(device,), name=f"{device.name}-{index}", daemon=True
            )
            self._inside[thread] = None
            thread.start()

    def begin_here(self, device: Device) -> Attempt | None:
        """Take a device's next batch off the queues for the calling thread, which then calls `run_here`; None
        if it is not to run now. With the lock held."""
        try:
            job, runner, _ = self._choose(device)
        except Exception:  # for the device's own thread to find, and to survive
            log.exception("%s: no batch could be chosen", device.name)
            return None
        return None if job is None or runner is None else self._begin(job, runner)

    def run_here(self, attempt: Attempt) -> None:
        """Run a batch on the calling thread, which is none of a device's. Whatever happens is answered."""
        try:
            self._run(attempt)
        except BaseException as fault:
            log.exception("%s: a batch was not finished", attempt.runner.device.name)
            self._survive(attempt.runner.device, attempt, fault)
        # A thread of the device would look now at what there is to do: for more requests, or for a probe.
        device = attempt.runner.device
        if attempt.runner.failures or not attempt.runner.in_use or self._work_waits():
            with self._lock:
                self.tell(device)

    def tell(self, device: Device) -> None:
        """Have a thread of a device look at the queues. With the lock held."""
        self._news[device].notify()

    def tell_idle(self) -> None:
        """Something was taken off a queue or ended: who waits for that looks again. With the lock held."""
        if self._stopping or any(network.closing for network in self._networks):
            self._idle.notify_all()

    def wait_until_idle(self, network: ServedNetwork) -> None:
        """Until nothing of a network is queued or running, or `stop` is called. With the lock held."""
        self._idle.wait_for(lambda: self._stopping or network.idle)

    def stop(self) -> None:
        """End the threads once the batches under way are done or given up, or at once after `hurry`."""
        with self._lock:
            self._stopping = True
            self._tell_all()
            self._idle.notify_all()
            while self._batches and not self._at_once:
                self._idle.wait(HURRY_S)
            self._watchdog.stop()
            # A call that hangs keeps its thread, and a probe takes its time: neither is waited for.
            free = [thread for thread, attempt in self._inside.items() if attempt is None]
        for thread in free:
            thread.join(JOIN_S)

    def hurry(self) -> None:
        """Have `stop` not wait for the batches under way. Also from a signal handler."""
        self._at_once = True

    def troubles(self) -> list[Trouble]:
        """The devices that are left out. With the lock held."""
        return [
            Trouble(runner.device.name, f"{runner.device.name} {runner.out_reason}", runner.out_since)
            for network in self._networks
            for runner in network.all_runners
            if not runner.in_use
        ]

    @property
    def well_since(self) -> float:
        """When the last device that was left out came back, in seconds of the Unix epoch."""
        return self._well_since

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
                self._fail(attempt.job, DeviceFailed(f"the evaluator could not finish the batch: {fault!r}"))
                self._watchdog.done(attempt)
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
        now = now_ms()
        probe_at_ms: float | None = None
        for network in self._networks:
            for runner in network.all_runners:
                if runner.device is not device:
                    continue
                if runner.in_use:
                    job = _job_to_retry(network, runner)
                    if job is not None:
                        network.retries.remove(job)
                        return job, runner, None
                elif not runner.running and not device.stuck:
                    if runner.probe_at_ms <= now:
                        return Job(network, [], 0), runner, None
                    probe_at_ms = min(runner.probe_at_ms, probe_at_ms or runner.probe_at_ms)
        job, chosen, again_ms = self._choose(device)
        if again_ms is None or (probe_at_ms is not None and probe_at_ms < again_ms):
            again_ms = probe_at_ms
        return job, chosen, again_ms

    def _begin(self, job: Job, runner: Runner) -> Attempt:
        device, now = runner.device, now_ms()
        runner.running += 1
        job.began_share_ms = device.share_ms(now)
        ms = runner.model.drain_ms(max(1, job.positions))
        # What runs already may have to end first.
        latest_ms = max(now, max(device.expected_end_ms, default=now))
        attempt = Attempt(job, runner, (now if runner.backend.side_by_side else latest_ms) + ms)
        device.expected_end_ms.append(attempt.expected_end_ms)
        if job.is_probe:
            self._watchdog.watch(attempt, now + 1000 * self.patience.open_s)
        else:
            self._batches += 1
            self._watchdog.watch(attempt, now + self.patience.batch_ms(latest_ms - now + ms))
        return attempt

    def _end(self, attempt: Attempt) -> None:
        """Note that a device is not busy with an attempt any more. With the lock held."""
        if not attempt.open:
            return
        attempt.open = False
        device = attempt.runner.device
        attempt.runner.running -= 1
        device.share_ms(now_ms())
        device.expected_end_ms.remove(attempt.expected_end_ms)
        if not attempt.job.is_probe:
            self._batches -= 1
        if attempt.job.network.closed and attempt.runner.free:
            attempt.runner.backend.close()
        self.tell_idle()

    # -- one batch -------------------------------------------------------------------------------------

    def _run(self, attempt: Attempt) -> None:
        job, runner = attempt.job, attempt.runner
        start = now_ms()
        evaluation: EvaluationBatch | None = None
        failure: BaseException | None = None
        try:
            if job.is_probe:
                _probe(runner)
            else:
                evaluation = evaluate_in_pieces(runner.backend, parts_of(job.segments))
        except BaseException as error:  # whatever a device does, the service goes on
            failure = error
        finished: list[tuple[Request, RemoteError | None]] = []
        with self._lock:
            if not self._watchdog.done(attempt):
                self._came_back(attempt, now_ms() - start)
                return
            if job.is_probe:
                self._probed(attempt, failure)
            elif evaluation is None:
                assert failure is not None
                self._failed(attempt, failure)
            else:
                self._complete(attempt, evaluation, start, now_ms(), finished)
        self._post(finished)
        with self._lock:
            self._end(attempt)

    def _complete(
        self,
        attempt: Attempt,
        evaluation: EvaluationBatch,
        start: float,
        end: float,
        finished: list[tuple[Request, RemoteError | None]],
    ) -> None:
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
            for request in distribute(job.segments, evaluation):
                self._closed(request, job.network)
                finished.append((request, None))
        except Exception as fault:  # memory, most likely: those not put together are answered so
            log.exception("%s: the answers of a batch could not be put together", runner.device.name)
            self._fail(job, DeviceFailed(f"the evaluator could not put the answer together: {fault!r}"))
        network, device = job.network.info.name, runner.device.name
        self._metrics.batch(network, device, job.positions, (end - start) / 1000)
        if runner is job.network.standby:
            self._metrics.fallback_batches.add()

    def _failed(self, attempt: Attempt, failure: BaseException) -> None:
        job, runner = attempt.job, attempt.runner
        name = runner.device.name
        if isinstance(failure, NotFiniteError):
            runner.failures = 0
            self._metrics.not_finite.add()
            log.warning(
                "%s: %s gave NaN or infinity; evaluating again on the standby", name, runner.backend.name
            )
            # Another device of the kind would compute the same.
            job.tried += [each.device for each in job.network.runners if each.device not in job.tried]
            error = DeviceFailed("the network's output for this request is not finite")
        else:
            self._metrics.device_failed(name)
            log.warning(
                "%s: %s failed on %d positions: %s", name, runner.backend.name, job.positions, failure
            )
            error = DeviceFailed(f"no device could evaluate the request: {failure}")
            runner.failures += 1
            if runner.failures >= MAX_FAILURES:
                reason = (
                    f"failed {runner.failures} times in a row, at last with: {str(failure) or repr(failure)}"
                )
                self._leave_out(job.network, runner, reason, now_ms() + 1000 * self.patience.retry_s)
        if runner.device not in job.tried:
            job.tried.append(runner.device)
        self._pass_on(job, error)

    def _pass_on(self, job: Job, error: RemoteError, *, wait: bool = True) -> None:
        """Hand a job to another device, or answer it with the error if there is none. wait: for a standby
        that has to be opened first."""
        network = job.network
        known = network.next_to_try(job) is not None
        if not self._stopping and (known or (self._request_standby(network) and wait)):
            network.retries.append(job)
            self._tell_all()
        else:
            self._fail(job, error)

    def _fail(self, job: Job, error: RemoteError) -> None:
        finished: list[tuple[Request, RemoteError | None]] = []
        for segment in job.segments:
            if not segment.request.closed:
                job.network.scheduler.remove(segment.request)
                self._closed(segment.request, job.network)
                finished.append((segment.request, error))
        self._post(finished)

    # -- devices that do not work ----------------------------------------------------------------------

    def _overdue(self, work: Attempt | ServedNetwork) -> None:
        if isinstance(work, ServedNetwork):
            self._standby_opened(work, None, "it took too long to open")
            return
        runner, device = work.runner, work.runner.device
        runner.stuck += 1
        device.stuck += 1
        self._metrics.device_hung(device.name)
        for network in self._networks:
            for each in network.all_runners:
                if each.device is device:
                    self._leave_out(network, each, "hangs: a batch does not come back", float("inf"))
        self._end(work)
        if not work.job.is_probe:
            work.job.tried.append(device)
            self._pass_on(work.job, DeviceFailed("the device hangs and there is no other"), wait=False)

    def _came_back(self, attempt: Attempt, took_ms: float) -> None:
        """A call that had been given up has returned. What it says is not wanted any more."""
        runner, device = attempt.runner, attempt.runner.device
        runner.stuck -= 1
        device.stuck -= 1
        log.warning("%s: a batch that was given up came back after %.1f s", device.name, took_ms / 1000)
        now = now_ms()
        for network in self._networks:
            for each in network.all_runners:
                if each.device is device and not device.stuck:
                    each.probe_at_ms = now
        if attempt.job.network.closed and runner.free:
            runner.backend.close()
        self._tell_all()

    def _leave_out(self, network: ServedNetwork, runner: Runner, reason: str, probe_at_ms: float) -> None:
        if runner.in_use:
            log.error("%s %s; network %s is run elsewhere", runner.device.name, reason, network.info.name)
        runner.leave_out(reason, probe_at_ms)
        if not network.in_use:
            self._request_standby(network)
            self._settle(network)

    def _probed(self, attempt: Attempt, failure: BaseException | None) -> None:
        runner, network = attempt.runner, attempt.job.network
        if failure is None:
            log.warning("%s works again with network %s", runner.device.name, network.info.name)
            runner.take_back()
            self._well_since = time.time()
        else:
            log.warning("%s: a probe failed: %s", runner.device.name, failure)
            runner.leave_out(runner.out_reason, now_ms() + 1000 * self.patience.retry_s)
            if not network.in_use:
                self._request_standby(network)
        self._tell_all()

    # -- the standby -----------------------------------------------------------------------------------

    def _request_standby(self, network: ServedNetwork) -> bool:
        """Begin to open a network's standby unless it is open; whether it is on its way."""
        if network.standby is not None or network.open_standby is None or self._stopping:
            return False
        if not network.standby_opening:
            network.standby_opening = True
            self._watchdog.watch(network, now_ms() + 1000 * self.patience.open_s)
            threading.Thread(target=self._open_standby, args=(network,), name="standby", daemon=True).start()
        return True

    def _open_standby(self, network: ServedNetwork) -> None:
        runner: Runner | None = None
        failure = ""
        try:
            assert network.open_standby is not None
            runner = network.open_standby()
        except BaseException as error:  # the requests that wait for it must hear of it
            failure = str(error) or repr(error)
        with self._lock:
            if not self._watchdog.done(network) or self._stopping or network not in self._networks:
                if runner is not None:
                    runner.backend.close()
                return
            self._standby_opened(network, runner, failure)

    def _standby_opened(self, network: ServedNetwork, runner: Runner | None, failure: str) -> None:
        network.standby_opening = False
        network.standby, network.standby_failed = runner, failure
        if runner is not None:
            log.warning(
                "network %s: %s on %s stands in for devices that fail",
                network.info.name,
                runner.backend.name,
                runner.backend.device,
            )
            self.start(runner)
        else:
            log.error("network %s: no backend can stand in: %s", network.info.name, failure)
        self._settle(network)

    def _settle(self, network: ServedNetwork) -> None:
        """Answer what nothing can evaluate any more; have the devices look at the rest."""
        error = DeviceFailed(f"network {network.info.name} has no device that works; try again later")
        for job in list(network.retries):
            if network.next_to_try(job) is None and not network.standby_opening:
                network.retries.remove(job)
                self._fail(job, error)
        if network.hopeless:
            finished: list[tuple[Request, RemoteError | None]] = []
            for request in network.scheduler.clear():
                self._closed(request, network)
                finished.append((request, error))
            self._post(finished)
        self._tell_all()

    def _tell_all(self) -> None:
        for news in self._news.values():
            news.notify_all()


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


def _probe(runner: Runner) -> None:
    """Whether a device works again: raises what is wrong. Its backend is opened anew if it fails as it is."""
    batch = [probe_batch(1)]
    try:
        evaluate_parts(runner.backend, batch)
    except NotFiniteError:
        return  # It computes; what, is a question of the batch.
    except Exception:
        if runner.reopen is None:
            raise
        runner.backend.close()
        runner.backend = runner.reopen()
        evaluate_parts(runner.backend, batch)

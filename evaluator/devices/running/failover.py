# SPDX-License-Identifier: GPL-3.0-or-later
"""Failover for failed batches, for failing devices, and for networks without a working device.

A failed batch goes to another device with the network, else to the network's standby. That is a backend which
is opened on first use, and serves all requests while no device works. A device is excluded after MAX_FAILURES
consecutive failures, or if a call hangs (watchdog.py). It is then probed regularly, and reopened if a probe
fails. If a hanging call returns after all, its answer is used and the device is in use again at once. Output
that is not finite is a failure of that batch only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evaluator.backends.common.base import NotFiniteError
from evaluator.backends.common.probe import probe_batch
from evaluator.devices.metrics import Metrics
from evaluator.devices.runners import Device, Runner, evaluate, now_ms
from evaluator.devices.running.watchdog import Patience, Watchdog
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.scheduling.requests import Request
from protocol.errors import DeviceFailed, RemoteError

log = logging.getLogger("evaluator.workers")

MAX_FAILURES = 3
"""Consecutive failures after which a device is excluded."""

Post = Callable[[Sequence[tuple[Request, RemoteError | None]]], None]
"""Receives finished requests with their evaluation in `parts`, or an error. Must not raise."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A job on a device. places: number of batches that it counts as. expected_end_ms: expected end. open:
    its end has not been noted yet."""

    job: Job
    runner: Runner
    places: int
    expected_end_ms: float
    open: bool = True


@dataclass(frozen=True, slots=True)
class StandbyWait:
    """The wait of a network's requests while its standby opens, which may take minutes."""

    network: ServedNetwork


@dataclass(frozen=True, slots=True)
class Stuck:
    """A device with a hanging call."""

    device: Device


@dataclass(frozen=True, slots=True)
class Trouble:
    """An excluded device. reason: a sentence. since: start of the exclusion in seconds of the Unix epoch."""

    device: str
    reason: str
    since: float


Watched: TypeAlias = Attempt | Job | ServedNetwork | StandbyWait | Stuck
"""Work for the watchdog; an opening standby is represented by its network."""


class DeviceFailover:
    """Retries or answers failed work, excludes devices and takes them into use again.

    lock: the dispatcher's; held in all calls. networks: the dispatcher's list of served networks. post: see
    Post. patience: may be changed. on_hung: called with a reason if a hanging call has not returned for
    retry_s seconds more. on_moved: called if a network's devices change, or what clients must know of them.
    start: starts the threads of a standby. notify_all: called when any device may have work. end: notes that
    a device is no longer busy with an attempt.
    """

    def __init__(
        self,
        lock: threading.RLock,
        networks: list[ServedNetwork],
        post: Post,
        metrics: Metrics,
        patience: Patience,
        *,
        on_hung: Callable[[str], None],
        on_moved: Callable[[], None],
        start: Callable[[Runner], None],
        notify_all: Callable[[], None],
        end: Callable[[Attempt, float], None],
    ) -> None:
        self._lock = lock
        self._networks = networks
        self._post = post
        self._metrics = metrics
        self.patience = patience
        self._on_hung = on_hung
        self._on_moved = on_moved
        self._start = start
        self._notify_all = notify_all
        self._end = end
        self.watchdog: Watchdog[Watched] = Watchdog(lock, self._overdue)
        self.stopping = False
        """True if no job may be passed on and no standby opened."""
        self.well_since = time.time()
        """When the last excluded device came back, in seconds of the Unix epoch."""

    def troubles(self) -> list[Trouble]:
        """Return the excluded devices."""
        return [
            Trouble(runner.device.name, f"{runner.device.name} {runner.out_reason}", runner.out_since)
            for network in self._networks
            for runner in network.all_runners
            if not runner.in_use
        ]

    # -- work ------------------------------------------------------------------------------------------

    def failed(self, attempt: Attempt, failure: BaseException) -> None:
        """Pass on a batch that failed on a device, and exclude the device after MAX_FAILURES."""
        job, runner = attempt.job, attempt.runner
        name = runner.device.name
        runner.model.refuse(job.positions)
        if isinstance(failure, NotFiniteError):
            runner.failures = 0
            self._metrics.not_finite.add()
            log.warning(
                "%s: %s gave NaN or infinity; evaluating again on the standby", name, runner.backend.name
            )
            # Another device of this kind would compute the same result.
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
        if not job.answered:
            self._pass_on(job, error)

    def _pass_on(self, job: Job, error: RemoteError) -> None:
        """Pass a job to another device, or answer it with the error if there is none.

        The job may wait for a standby that is opening, or for a given-up call that may still return.
        """
        network = job.network
        if not self.stopping and (
            network.next_to_try(job) is not None or job.awaited or self._request_standby(network)
        ):
            job.error = error
            network.retries.append(job)
            self.watchdog.watch(job, job.due_ms)
            self._notify_all()
        else:
            self.fail(job, error)

    def take(self, job: Job) -> None:
        """Note that a job no longer waits for another device."""
        job.network.retries.remove(job)
        self.watchdog.done(job)

    def fail(self, job: Job, error: RemoteError) -> None:
        """Answer the unanswered requests of a job with an error."""
        if job.answered:
            return
        job.answered = True
        finished: list[tuple[Request, RemoteError | None]] = []
        for segment in job.segments:
            if not segment.request.closed:
                job.network.scheduler.remove(segment.request)
                job.network.replied(segment.request.client, now_ms())
                finished.append((segment.request, error))
        self._post(finished)

    # -- devices ---------------------------------------------------------------------------------------

    def came_back(self, attempt: Attempt, took_ms: float, *, worked: bool) -> bool:
        """Note that a given-up call has returned, and return True if its answer is still needed.

        worked: it returned an answer. Then the device did not hang, and is in use again at once.
        """
        job, device = attempt.job, attempt.runner.device
        log.warning("%s: a batch that was given up came back after %.1f s", device.name, took_ms / 1000)
        self.free_again(job.network, attempt.runner)
        job.awaited -= 1
        if worked and not device.stuck:
            for network in self._networks:
                for each in network.all_runners:
                    if each.device is device and not each.in_use:
                        network.take_back(each)
            self._on_moved()
            self.well_since = time.time()
        if not worked or job.answered or not job.segments:
            return False
        if job in job.network.retries:
            self.take(job)
        return True

    def free_again(self, network: ServedNetwork, runner: Runner) -> None:
        """Count a given-up call as returned; without others, probe the device at once. With the lock held."""
        device = runner.device
        runner.stuck_inside(-1)
        if not device.stuck:
            self.watchdog.done(Stuck(device))
        now = now_ms()
        for served in self._networks:
            for each in served.all_runners:
                if each.device is device and not device.stuck:
                    each.probe_at_ms = now
        network.close_left(runner)
        self._notify_all()

    def probed(self, attempt: Attempt, failure: BaseException | None) -> None:
        """Handle the end of a probe: use the device again, or retry later. failure: None if it succeeded."""
        runner, network = attempt.runner, attempt.job.network
        if failure is None:
            log.warning("%s works again with network %s", runner.device.name, network.info.name)
            network.take_back(runner)
            self.well_since = time.time()
            self._on_moved()
        else:
            log.warning("%s: a probe failed: %s", runner.device.name, failure)
            runner.probe_at_ms = now_ms() + 1000 * self.patience.retry_s
            if not network.in_use:
                self._request_standby(network)
        self._notify_all()

    def _leave_out(
        self, network: ServedNetwork, runner: Runner, reason: str, probe_at_ms: float, *, standby: bool = True
    ) -> None:
        """Exclude a device. standby: open one if no other device is left."""
        if runner.in_use:
            log.error("%s %s; network %s is run elsewhere", runner.device.name, reason, network.info.name)
            self._on_moved()
        network.leave_out(runner, reason, probe_at_ms)
        if not network.in_use:
            if standby:
                self._request_standby(network)
            self._settle(network)

    def _overdue(self, work: Watched) -> None:
        """Handle overdue work: a hanging batch, a job that waits for another device, a standby that does not
        open or opens too late for its requests, or a device that still hangs."""
        if isinstance(work, Stuck):
            reason = f"{work.device.name} hangs: its driver has not returned"
            log.error("%s; only a restart of the service can bring it back", reason)
            self._on_hung(reason)
            return
        if isinstance(work, ServedNetwork):
            self._standby_opened(work, None, "it took too long to open")
            return
        if isinstance(work, StandbyWait):
            work.network.standby_late = True
            self._settle(work.network)
            return
        if isinstance(work, Job):
            assert work.error is not None
            self.take(work)
            self.fail(work, work.error)
            self._notify_all()
            return
        runner, device = work.runner, work.runner.device
        runner.stuck_inside(1)
        self._metrics.device_hung(device.name)
        for network in self._networks:
            for each in network.all_runners:
                if each.device is device:
                    # A standby would compete for the processors that this device lacks.
                    standby = not each.backend.on_host
                    reason = "hangs: a batch does not come back"
                    self._leave_out(network, each, reason, float("inf"), standby=standby)
        self._end(work, now_ms())
        self.watchdog.watch(Stuck(device), now_ms() + 1000 * self.patience.retry_s)
        work.job.awaited += 1
        if work.job.segments and not work.job.answered:
            work.job.tried.append(device)
            self._pass_on(work.job, DeviceFailed("the device hangs and there is no other"))

    # -- the standby -----------------------------------------------------------------------------------

    def _request_standby(self, network: ServedNetwork) -> bool:
        """Start opening a network's standby unless it is open. Returns True if it is opening."""
        if network.standby is not None or network.open_standby is None or self.stopping:
            return False
        if not network.standby_opening:
            network.standby_opening = True
            self.watchdog.watch(network, now_ms() + 1000 * self.patience.open_s)
            self.watchdog.watch(StandbyWait(network), now_ms() + self.patience.answer_ms(0.0))
            threading.Thread(target=self._open_standby, args=(network,), name="standby", daemon=True).start()
        return True

    def _open_standby(self, network: ServedNetwork) -> None:
        runner: Runner | None = None
        failure = ""
        try:
            assert network.open_standby is not None
            runner = network.open_standby()
        except BaseException as error:  # the waiting requests get the error
            failure = str(error) or repr(error)
        with self._lock:
            if not self.watchdog.done(network) or self.stopping or network not in self._networks:
                if runner is not None:
                    runner.backend.close()
                return
            self._standby_opened(network, runner, failure)

    def _standby_opened(self, network: ServedNetwork, runner: Runner | None, failure: str) -> None:
        network.standby_opening = network.standby_late = False
        self.watchdog.done(StandbyWait(network))
        network.use_standby(runner)
        if runner is not None:
            log.warning(
                "network %s: %s on %s stands in for devices that fail",
                network.info.name,
                runner.backend.name,
                runner.backend.device,
            )
            self._start(runner)
            self._on_moved()
        else:
            log.error("network %s: no backend can stand in: %s", network.info.name, failure)
        self._settle(network)

    def _settle(self, network: ServedNetwork) -> None:
        """Answer requests that no device can evaluate, and notify the devices of the others."""
        error = DeviceFailed(f"network {network.info.name} has no device that works; try again later")
        for job in list(network.retries):
            if network.next_to_try(job) is None and not network.standby_opening and not job.awaited:
                self.take(job)
                self.fail(job, error)
        if network.unavailable:
            finished: list[tuple[Request, RemoteError | None]] = []
            for request in network.scheduler.clear():
                network.replied(request.client, now_ms())
                finished.append((request, error))
            self._post(finished)
        self._notify_all()


def probe(runner: Runner) -> None:
    """Test an excluded device, reopening its backend if it fails. Raises the error if it still fails."""
    batch = [probe_batch(1)]
    try:
        evaluate(runner.backend, batch)
    except NotFiniteError:
        return  # it computes; NaN or infinity is a fault of the batch
    except Exception:
        if runner.reopen is None:
            raise
        runner.backend.close()
        runner.backend = runner.reopen()
        evaluate(runner.backend, batch)

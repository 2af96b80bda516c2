# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of work that a device failed on, of the device, and of a network that has none left.

A batch that a device fails on goes to another one that holds the network, else to the network's standby: a
backend that is opened when it is first needed, and takes all requests while no device works. A device that
fails MAX_FAILURES times in a row, or inside which a call hangs (watchdog.py), is left out; it is tried again
with a probe, and opened anew if that fails. A call that returns after all brings its device back at once, and
its answer is used. Output that is not finite is a failure of that batch alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evaluator.backends.base import NotFiniteError
from evaluator.backends.probe import probe_batch
from evaluator.devices.runners import Device, Runner, evaluate_parts, now_ms
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.devices.watchdog import Patience, Watchdog
from evaluator.metrics import Metrics
from evaluator.scheduling.requests import Request
from protocol.errors import DeviceFailed, RemoteError

log = logging.getLogger("evaluator.workers")

MAX_FAILURES = 3
"""Failures in a row after which a device is left out."""

Post = Callable[[Sequence[tuple[Request, RemoteError | None]]], None]
"""Takes finished requests: with their evaluation in `parts`, or the error. Does not raise."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A job on a device. expected_end_ms: when it should be done. open: its end has not been noted yet."""

    job: Job
    runner: Runner
    expected_end_ms: float
    open: bool = True


@dataclass(frozen=True, slots=True)
class StandbyWait:
    """What the requests of a network do while its standby is being opened, which may take minutes."""

    network: ServedNetwork


@dataclass(frozen=True, slots=True)
class Stuck:
    """A device inside which a call hangs."""

    device: Device


@dataclass(frozen=True, slots=True)
class Trouble:
    """A device that is left out: which, why (a sentence), and since when in seconds of the Unix epoch."""

    device: str
    reason: str
    since: float


Watched: TypeAlias = Attempt | Job | ServedNetwork | StandbyWait | Stuck
"""What is watched; a standby that opens is watched under its network."""


class Failover:
    """Takes what failed elsewhere, or answers for it, and devices out of use and into it again.

    lock: the dispatcher's; all is called with it held. networks: those served, the dispatcher's list.
    closed: notes that a request is answered. post: see Post. patience: may be changed. on_hung: called with a
    reason for a device that hangs, once its call has not returned for retry_s seconds more. on_moved: called
    when other devices compute a network than before. start: starts the threads of a standby. notify_all:
    called when any device may have work. end: notes that a device is not busy with an attempt any more.
    """

    def __init__(
        self,
        lock: threading.RLock,
        networks: list[ServedNetwork],
        closed: Callable[[Request, ServedNetwork], None],
        post: Post,
        metrics: Metrics,
        patience: Patience,
        *,
        on_hung: Callable[[str], None],
        on_moved: Callable[[], None],
        start: Callable[[Runner], None],
        notify_all: Callable[[], None],
        end: Callable[[Attempt], None],
    ) -> None:
        self._lock = lock
        self._networks = networks
        self._closed = closed
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
        """Nothing is handed on or opened any more."""
        self.well_since = time.time()
        """When the last device that was left out came back, in seconds of the Unix epoch."""

    def troubles(self) -> list[Trouble]:
        """The devices that are left out."""
        return [
            Trouble(runner.device.name, f"{runner.device.name} {runner.out_reason}", runner.out_since)
            for network in self._networks
            for runner in network.all_runners
            if not runner.in_use
        ]

    # -- work ------------------------------------------------------------------------------------------

    def failed(self, attempt: Attempt, failure: BaseException) -> None:
        """A device has failed on a batch: hand it on, and leave the device out after MAX_FAILURES."""
        job, runner = attempt.job, attempt.runner
        name = runner.device.name
        runner.model.refuse(job.positions)
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
        if not job.answered:
            self._pass_on(job, error)

    def _pass_on(self, job: Job, error: RemoteError) -> None:
        """Hand a job to another device, or answer it with the error if there is none.

        The job waits for a standby that has to be opened first, and for a call that was given up and may
        return.
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
        """A job waits for another device no more."""
        job.network.retries.remove(job)
        self.watchdog.done(job)

    def fail(self, job: Job, error: RemoteError) -> None:
        """Answer the requests of a job with an error, those that are not answered yet."""
        if job.answered:
            return
        job.answered = True
        finished: list[tuple[Request, RemoteError | None]] = []
        for segment in job.segments:
            if not segment.request.closed:
                job.network.scheduler.remove(segment.request)
                self._closed(segment.request, job.network)
                finished.append((segment.request, error))
        self._post(finished)

    # -- devices ---------------------------------------------------------------------------------------

    def came_back(self, attempt: Attempt, took_ms: float, *, worked: bool) -> bool:
        """Note that a call that was given up has returned; returns whether its answer is still wanted.

        worked: it brought an answer. The device did not hang then, and is in use again at once.
        """
        job, device = attempt.job, attempt.runner.device
        log.warning("%s: a batch that was given up came back after %.1f s", device.name, took_ms / 1000)
        self.free_again(job.network, attempt.runner)
        job.awaited -= 1
        if worked and not device.stuck:
            for network in self._networks:
                for each in network.all_runners:
                    if each.device is device and not each.in_use:
                        each.take_back()
            self._on_moved()
            self.well_since = time.time()
        if not worked or job.answered or not job.segments:
            return False
        if job in job.network.retries:
            self.take(job)
        return True

    def free_again(self, network: ServedNetwork, runner: Runner) -> None:
        """What was stuck inside a device is not any more: it may be tried again. With the lock held."""
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
        """A probe has ended: take the device into use again, or try later. failure: None if it went well."""
        runner, network = attempt.runner, attempt.job.network
        if failure is None:
            log.warning("%s works again with network %s", runner.device.name, network.info.name)
            runner.take_back()
            self.well_since = time.time()
            self._on_moved()
        else:
            log.warning("%s: a probe failed: %s", runner.device.name, failure)
            runner.leave_out(runner.out_reason, now_ms() + 1000 * self.patience.retry_s)
            if not network.in_use:
                self._request_standby(network)
        self._notify_all()

    def _leave_out(
        self, network: ServedNetwork, runner: Runner, reason: str, probe_at_ms: float, *, standby: bool = True
    ) -> None:
        """Give a device no work. standby: open one if no other device is left."""
        if runner.in_use:
            log.error("%s %s; network %s is run elsewhere", runner.device.name, reason, network.info.name)
            self._on_moved()
        runner.leave_out(reason, probe_at_ms)
        if not network.in_use:
            if standby:
                self._request_standby(network)
            self._settle(network)

    def _overdue(self, work: Watched) -> None:
        """A batch hangs in its device, a job has waited for another one for too long, a standby (watched
        under its network) does not open, or not as soon as requests wait for it, or a device hangs on."""
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
                    # A standby would compute on the processors that this one is short of.
                    standby = not each.backend.on_host
                    reason = "hangs: a batch does not come back"
                    self._leave_out(network, each, reason, float("inf"), standby=standby)
        self._end(work)
        self.watchdog.watch(Stuck(device), now_ms() + 1000 * self.patience.retry_s)
        work.job.awaited += 1
        if work.job.segments and not work.job.answered:
            work.job.tried.append(device)
            self._pass_on(work.job, DeviceFailed("the device hangs and there is no other"))

    # -- the standby -----------------------------------------------------------------------------------

    def _request_standby(self, network: ServedNetwork) -> bool:
        """Begin to open a network's standby unless it is open; whether it is on its way."""
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
        except BaseException as error:  # the requests that wait for it must hear of it
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
        network.standby = runner
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
        """Answer what nothing can evaluate any more; have the devices look at the rest."""
        error = DeviceFailed(f"network {network.info.name} has no device that works; try again later")
        for job in list(network.retries):
            if network.next_to_try(job) is None and not network.standby_opening and not job.awaited:
                self.take(job)
                self.fail(job, error)
        if network.hopeless:
            finished: list[tuple[Request, RemoteError | None]] = []
            for request in network.scheduler.clear():
                self._closed(request, network)
                finished.append((request, error))
            self._post(finished)
        self._notify_all()


def probe(runner: Runner) -> None:
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

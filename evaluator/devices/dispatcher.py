# SPDX-License-Identifier: GPL-3.0-or-later
"""The dispatcher: the queues of all networks, and the choice of each device's next batch.

A `Dispatcher` holds the served networks; workers.py has the threads that run them. Its one lock guards
queues, policies and counters, and is never held while a device computes. Worker threads pass finished
requests to the service through `post`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from evaluator.backends.buffer_lease import BufferLease
from evaluator.devices.choosing import expected_wait_ms, next_job, runners_to_notify
from evaluator.devices.failover import Post, Trouble
from evaluator.devices.runners import Device, Runner, now_ms
from evaluator.devices.served_network import ServedNetwork
from evaluator.devices.tuning import BackgroundTuning
from evaluator.devices.watchdog import Patience
from evaluator.devices.workers import Choice, Workers
from evaluator.metrics import Metrics
from evaluator.scheduling.admission import Admission, QueueLimits
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.requests import Request
from protocol.errors import DeadlineExceeded, DeviceFailed
from protocol.messages import PRIORITIES, NetworkInfo

log = logging.getLogger("evaluator.dispatcher")

Found = TypeVar("Found")

TOLD = 16
"""Maximum number of batches from one direct run that are recorded and used for learning."""


class Dispatcher:
    """The served networks and the threads that run them.

    post: see Post. patience: time limits for devices. on_hung, on_moved: see Failover.
    """

    def __init__(
        self,
        post: Post,
        metrics: Metrics,
        limits: QueueLimits,
        patience: Patience = Patience(),  # noqa: B008 - immutable
        on_hung: Callable[[str], None] = lambda reason: None,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._admission = Admission(limits)
        self._lock = threading.RLock()
        self._networks: list[ServedNetwork] = []
        self._workers = Workers(
            self._lock,
            self._networks,
            self._choose,
            self._closed,
            post,
            metrics,
            patience,
            on_hung,
            on_moved,
        )
        self._tuning = BackgroundTuning(self._lock, self._networks, self._workers.idle, self._workers.notify)
        self._unannounced = False

    # -- networks --------------------------------------------------------------------------------------

    def add(self, network: ServedNetwork) -> None:
        """Serve a network, if it is not served yet. Starts the threads of new devices."""
        with self._lock:
            if network in self._networks:
                return
            self._networks.append(network)
            for runner in network.runners:
                self._workers.start(runner)
                if not runner.model.known:
                    log.info(
                        "network %s on %s: batches measured %s positions, the rest while it serves",
                        network.info.name,
                        runner.device.name,
                        runner.model.extent,
                    )
            self._tuning.add(network)

    def retire(self, network: ServedNetwork) -> None:
        """Stop serving a network: run its queued requests, then free its devices. Blocks."""
        with self._lock:
            network.closing = True
            self._workers.wait_until_idle(network)
            if network in self._networks:
                self._networks.remove(network)
            backends = network.give_up()
        for backend in backends:
            backend.close()

    def stop(self) -> None:
        """End the threads after the batches in flight, except hanging ones. Discard queued requests and free
        the devices."""
        self._tuning.stop()
        self._workers.stop()
        with self._lock:
            backends = [backend for network in self._networks for backend in network.give_up()]
            self._networks.clear()
        for backend in backends:
            backend.close()

    def configure(self, limits: QueueLimits, patience: Patience, targets: LatencyTargets) -> None:
        """Apply new settings."""
        with self._lock:
            self._admission.limits = limits
            self._workers.failover.patience = patience
            for network in self._networks:
                for runner in network.all_runners:
                    runner.policy.targets = targets

    def hurry(self) -> None:
        """Make `stop` not wait for the batches in flight. For signal handlers, too."""
        self._workers.hurry()

    def troubles(self) -> tuple[list[Trouble], bool, float]:
        """Return the excluded devices, whether every network can still be evaluated, and since when (seconds
        of the Unix epoch) no device has been excluded."""
        with self._lock:
            usable = not any(network.hopeless for network in self._networks)
            failover = self._workers.failover
            return failover.troubles(), usable, failover.well_since

    # -- requests --------------------------------------------------------------------------------------

    def submit(self, network: ServedNetwork, request: Request) -> None:
        """Queue a request; the next `announce` notifies the devices. Raises Overloaded if the queue of its
        class or the client's share is full, DeadlineExceeded if it would wait too long, and DeviceFailed if
        no device can run it."""
        with self._lock:
            if network.hopeless:
                raise DeviceFailed(f"network {network.info.name} has no device that works; try again later")
            if request.deadline_ms is not None:
                now = now_ms()
                wait_ms = expected_wait_ms(network, request, now)
                if now + wait_ms > request.deadline_ms:
                    raise DeadlineExceeded(
                        f"it would wait {wait_ms:.0f} ms, which is longer than its deadline"
                    )
            if not _hurries(request, network):
                request.target_ms = None
            self._admission.admit(request, network.scheduler)
            network.scheduler.add(request)
            for runner in network.all_runners:
                runner.policy.arrived(request.client, request.count, request.rank, request.arrived_ms)
                if request.target_ms is not None:
                    runner.policy.hurry(request.target_ms, request.arrived_ms)
            self._unannounced = True

    def announce(self) -> None:
        """Notify the devices of queued requests, once for all that arrived together. Only devices that may
        need it are notified, because each check of the queues takes the GIL from the I/O thread."""
        if not self._unannounced:
            return
        with self._lock:
            self._unannounced = False
            now = now_ms()
            runners = (each for network in self._networks for each in runners_to_notify(network, now))
            for device in {runner.device for runner in runners}:
                self._workers.notify(device)

    # -- a thread that runs batches directly -------------------------------------------------------------

    def begin_directly(self, network: ServedNetwork) -> tuple[Runner, BufferLease] | None:
        """Lease the only device of a network, with its batch buffers. Returns None if any network has queued
        requests, the device is busy or its backend does not lease buffers. Until `end_directly` only the
        caller uses them."""
        with self._lock:
            if network.closing or any(each.scheduler.positions or each.retries for each in self._networks):
                return None
            runners = network.in_use
            if len(runners) != 1:
                return None
            runner, device = runners[0], runners[0].device
            if device.busy or device.stuck or device.reserved:
                return None
            lease = runner.backend.lease_buffers()
            if lease is None:
                return None
            runner.running += 1
            device.direct = True
            return runner, lease

    def end_directly(self, network: ServedNetwork, runner: Runner) -> None:
        """Note that the caller has released its buffers."""
        with self._lock:
            runner.running -= 1
            runner.device.direct = False
            network.close_left(runner)
            self._workers.notify_idle()

    def give_up_directly(self, runner: Runner) -> None:
        """Note that the caller has given up its batches in flight. It keeps the buffers until
        `settled_directly`, because the device may still write to them."""
        with self._lock:
            runner.running -= 1
            runner.device.direct = False
            runner.stuck_inside(1)
            self._workers.notify_idle()

    def settled_directly(self, network: ServedNetwork, runner: Runner) -> None:
        """Note that the caller has released its buffers after `give_up_directly`."""
        with self._lock:
            self._workers.failover.free_again(network, runner)

    def ran_directly(
        self,
        runner: Runner,
        positions: Sequence[int],
        ranks: Iterable[int],
        milliseconds: Sequence[float],
        alone: Sequence[bool],
    ) -> None:
        """Record batches of a direct run, the last of which has just ended. milliseconds: device time of
        each. alone: True if no other batch was in flight. ranks: classes of all batches."""
        now = now_ms()
        with self._lock:
            runner.failures = 0
            runner.device.was_busy(sum(milliseconds))
            runner.device.last_end_ms = now
            for rank in ranks:
                runner.policy.expect(rank, now)
            last = slice(-TOLD, None)
            may_share = runner.may_share(set(positions))
            for count, ms, lonely in zip(positions[last], milliseconds[last], alone[last], strict=True):
                runner.ran(count, ms)
                if lonely or not may_share:
                    runner.learn(count, ms, disturbed=self._workers.others.busy)

    def cancel(self, network: ServedNetwork, request: Request) -> bool:
        """Cancel a request. Returns False if it is already answered. Positions of it that are running are
        evaluated, and their results discarded."""
        with self._lock:
            if request.closed:
                return False
            network.scheduler.remove(request)
            self._admission.release(request)
            self._workers.notify_idle()
            return True

    def remove_client(self, client: Hashable) -> None:
        """Discard all queued requests of a client."""
        with self._lock:
            for network in self._networks:
                network.scheduler.remove_client(client)
                for runner in network.all_runners:
                    runner.policy.forget(client)
            self._admission.forget(client)
            self._workers.notify_idle()

    def expire(self) -> list[Request]:
        """Remove and return the requests whose deadlines have passed."""
        expired = []
        with self._lock:
            for network in self._networks:
                expired += network.scheduler.expire(now_ms())
            for request in expired:
                self._admission.release(request)
            if expired:
                self._workers.notify_idle()
        return expired

    def next_deadline_ms(self) -> float | None:
        """Return the earliest deadline in the queues, on the clock of now_ms; None if there is none."""
        with self._lock:
            deadlines = [network.scheduler.next_deadline_ms() for network in self._networks]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def queued(self) -> dict[str, dict[str, int]]:
        """Return the number of queued positions by network and class."""
        with self._lock:
            return {
                network.info.name: {
                    name: network.scheduler.positions_of(rank) for rank, name in enumerate(PRIORITIES)
                }
                for network in self._networks
            }

    def devices(self) -> dict[str, tuple[int, bool]]:
        """Return for each device its batches in flight, and whether it is in use."""
        found: dict[str, tuple[int, bool]] = {}
        with self._lock:
            for network in self._networks:
                for runner in network.all_runners:
                    running, in_use = found.get(runner.device.name, (0, True))
                    found[runner.device.name] = (running + runner.running, in_use and runner.in_use)
        return found

    def curves(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the measured part of each network's curve on each device; see State.curves."""
        with self._lock:
            return {
                network.info.name: {
                    runner.device.name: {
                        "measured": runner.model.measured,
                        "largest": runner.model.largest,
                        "known": runner.model.known,
                    }
                    for runner in network.all_runners
                }
                for network in self._networks
            }

    def busy_ms(self) -> dict[str, float]:
        """Return each device's total time with a batch in flight; overlapping batches count once."""
        now = now_ms()
        with self._lock:
            devices = {runner.device for network in self._networks for runner in network.all_runners}
            return {device.name: device.busy_ms(now) for device in devices}

    def tuning(self) -> dict[str, str]:
        """Return what is being measured, in words, by device."""
        with self._lock:
            devices = {runner.device for network in self._networks for runner in network.runners}
        return {device.name: device.tuning for device in devices if device.tuning}

    def device_memory(self) -> dict[str, dict[str, int]]:
        """The "used" and "total" bytes of each device that reports its memory."""
        with self._lock:
            runners = [runner for network in self._networks for runner in network.in_use]
        known = {runner.device.name: runner.backend.memory() for runner in runners}
        return {name: {"used": each[0], "total": each[1]} for name, each in known.items() if each is not None}

    def inspect(self, look: Callable[[Sequence[ServedNetwork], QueueLimits], Found]) -> Found:
        """Return `look` of all networks and the queue limits. No state changes and no batch starts meanwhile,
        so `look` must be quick."""
        with self._lock:
            return look(self._networks, self._admission.limits)

    def info(self, network: ServedNetwork) -> NetworkInfo:
        """Return a network's description, with its latency curve corrected by observed batches."""
        with self._lock:
            return network.current_info()

    # -- for the worker threads ------------------------------------------------------------------------

    def _choose(self, device: Device) -> Choice:
        """Return the next job for a device and its runner; without a job, the time to check again."""
        return next_job(self._networks, device, now_ms())

    def _closed(self, request: Request, network: ServedNetwork) -> None:
        """Note that a request is about to be answered."""
        self._admission.release(request)
        now = now_ms()
        for runner in network.all_runners:
            runner.policy.replied(request.client, now)


def _hurries(request: Request, network: ServedNetwork) -> bool:
    """Return True if a request of class play wants a shorter latency than the class has."""
    wanted_ms = request.target_ms
    if request.rank or wanted_ms is None:
        return False
    return all(wanted_ms < runner.policy.targets.play for runner in network.all_runners)

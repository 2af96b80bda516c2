# SPDX-License-Identifier: GPL-3.0-or-later
"""The dispatcher: the queues of all networks, and the choice of each device's next batch.

A `Dispatcher` holds the served networks; workers.py has the threads that run them. Its one lock guards
queues, policies and counters, and is never held while a device computes. Worker threads pass finished
requests to the service through `post`. `next_job` chooses a device's next batch.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from evaluator.backends.common.buffer_lease import BufferLease
from evaluator.devices.metrics import Metrics
from evaluator.devices.runners import Device, Runner, now_ms
from evaluator.devices.running.failover import Post, Trouble
from evaluator.devices.running.tuning import BackgroundTuning
from evaluator.devices.running.watchdog import Patience
from evaluator.devices.running.workers import Choice, Workers
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.scheduling.batching import LatencyTargets, LaunchNow, Wait
from evaluator.scheduling.placement import Leave, Station, free_at_ms, place, share_out
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Order, QueueLimits, Scheduler
from protocol.errors import DeadlineExceeded, DeviceFailed, Overloaded
from protocol.wire.messages import PRIORITIES, NetworkInfo

log = logging.getLogger("evaluator.dispatcher")

Found = TypeVar("Found")

TOLD = 16
"""Maximum number of batches from one direct run that are recorded and used for learning."""


class Dispatcher:
    """The served networks and the threads that run them.

    post: see Post. limits: of the queues. patience: time limits for devices. on_hung, on_moved: see
    DeviceFailover.
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
        self.limits = limits
        self.deadline_ms = math.inf
        """When `expire` next has something to do at the earliest, on the clock of now_ms."""
        self._lock = threading.RLock()
        self._networks: list[ServedNetwork] = []
        self._order = Order()
        self._workers = Workers(
            self._lock,
            self._networks,
            partial(next_job, self._networks),
            post,
            metrics,
            patience,
            on_hung,
            on_moved,
        )
        self._tuning = BackgroundTuning(
            self._lock, self._networks, self._workers.idle, self._workers.notify, on_moved
        )
        self._unannounced = False

    # -- networks --------------------------------------------------------------------------------------

    def add(self, network: ServedNetwork) -> None:
        """Serve a network, if it is not served yet. Starts the threads of new devices."""
        with self._lock:
            if network in self._networks:
                return
            network.scheduler = Scheduler(self._order)
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
                self._order.schedulers.remove(network.scheduler)
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
            self.limits = limits
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
            usable = not any(network.unavailable for network in self._networks)
            failover = self._workers.failover
            return failover.troubles(), usable, failover.well_since

    # -- requests --------------------------------------------------------------------------------------

    def submit(self, network: ServedNetwork, request: Request) -> None:
        """Queue a request; the next `announce` notifies the devices. Raises Overloaded if the queue of its
        class is full, DeadlineExceeded if it would wait too long, and DeviceFailed if no device can run
        it."""
        with self._lock:
            if not network.in_use and network.unavailable:
                raise DeviceFailed(f"network {network.info.name} has no device that works; try again later")
            if request.deadline_ms is not None:
                wait_ms = expected_wait_ms(self._networks, network, request, request.arrived_ms)
                if request.arrived_ms + wait_ms > request.deadline_ms:
                    raise DeadlineExceeded(
                        f"it would wait {wait_ms:.0f} ms, which is longer than its deadline"
                    )
            limit = self.limits[request.rank]
            if network.scheduler.positions + request.count > limit:
                queued = network.scheduler.positions_of(request.rank)
                if queued + request.count > limit:
                    raise Overloaded(
                        f"{queued} positions of class {PRIORITIES[request.rank]} are queued, of at most "
                        f"{limit}; try again later"
                    )
            if request.target_ms is not None and not _hurries(request, network):
                request.target_ms = None
            network.scheduler.add(request)
            if request.deadline_ms is not None:
                self.deadline_ms = min(self.deadline_ms, request.deadline_ms)
            for runner in network.all_runners:
                runner.policy.arrived(request.client, request.count, request.rank, request.arrived_ms)
                if request.target_ms is not None:
                    runner.policy.hurry(request.target_ms, request.arrived_ms)
            self._unannounced = True

    def announce(self, *, now: float) -> None:
        """Notify the devices of queued requests, once for all that arrived together. Only devices that may
        need it are notified, because each check of the queues takes the GIL from the I/O thread."""
        if not self._unannounced:
            return
        with self._lock:
            self._unannounced = False
            devices: set[Device] = set()
            for network in self._networks:
                queued = network.scheduler.positions
                if queued:
                    runners = network.in_use if len(network.in_use) == 1 else _wanted(network, queued, now)
                    for runner in runners:
                        if not runner.knows_enough(queued):
                            devices.add(runner.device)
            for device in devices:
                self._workers.notify(device)

    # -- a thread that runs batches directly -------------------------------------------------------------

    def begin_directly(self, network: ServedNetwork) -> tuple[Runner, BufferLease] | None:
        """Lease the only device of a network, with its batch buffers. Returns None if any network has queued
        requests, the device is busy or its backend does not lease buffers. Until `end_directly` only the
        caller uses them."""
        with self._lock:
            if network.closing or any(each.scheduler.positions or each.retries for each in self._networks):
                return None
            if len(network.in_use) != 1:
                return None
            runner, device = network.in_use[0], network.in_use[0].device
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
                    self._workers.learn(runner, count, ms)

    def cancel(self, network: ServedNetwork, request: Request) -> bool:
        """Cancel a request. Returns False if it is already answered. Positions of it that are running are
        evaluated, and their results discarded."""
        with self._lock:
            if request.closed:
                return False
            network.scheduler.remove(request)
            self._workers.notify_idle()
            return True

    def remove_client(self, client: Hashable) -> None:
        """Discard all queued requests of a client."""
        with self._lock:
            for network in self._networks:
                network.scheduler.remove_client(client)
                for runner in network.all_runners:
                    runner.policy.forget(client)
            self._workers.notify_idle()

    def expire(self, now: float) -> list[Request]:
        """Remove and return the requests whose deadlines have passed."""
        with self._lock:
            expired = [request for network in self._networks for request in network.scheduler.expire(now)]
            deadlines = [network.scheduler.next_deadline_ms() for network in self._networks]
            self.deadline_ms = min([each for each in deadlines if each is not None], default=math.inf)
            if expired:
                self._workers.notify_idle()
        return expired

    def busy_ms(self) -> dict[str, float]:
        """Return each device's total time with a batch in flight; overlapping batches count once."""
        now = now_ms()
        with self._lock:
            devices = {runner.device for network in self._networks for runner in network.all_runners}
            return {device.name: device.busy_ms(now) for device in devices}

    def inspect(self, look: Callable[[Sequence[ServedNetwork], QueueLimits], Found]) -> Found:
        """Return `look` of all networks and the queue limits. No state changes and no batch starts meanwhile,
        so `look` must be quick."""
        with self._lock:
            return look(self._networks, self.limits)

    def info(self, network: ServedNetwork) -> NetworkInfo:
        """Return a network's description, with its latency curve corrected by observed batches."""
        with self._lock:
            return network.current_info()


def next_job(networks: Sequence[ServedNetwork], device: Device, now: float) -> Choice:
    """Remove the next job for a device from its queue and return it with its runner; without a job, return
    the time to check again.

    The network with the earliest tag goes first. Its batch has no requests that are more than a full batch
    behind the next network's. After a small batch that one is next: else players, who always have a request
    on the first, delay it until their tags are as late, and then wait for all that it has.
    """
    waiting: list[tuple[ServedNetwork, Runner]] = []
    for network in networks:
        if network.scheduler.positions:
            for runner in network.in_use:
                if runner.device is device and runner.running < runner.backend.max_in_flight:
                    waiting.append((network, runner))
    limit = sys.maxsize
    if len(waiting) > 1:
        turns = {network: network.scheduler.urgency() or (0, (0.0, 0, 0.0)) for network, _ in waiting}
        waiting.sort(key=lambda each: turns[each[0]])
        (first, runner), (second, _) = waiting[:2]
        rank, (tag, *_) = turns[second]
        if turns[first][0] == rank >= 0:
            if first.scheduler is device.yields:
                waiting[:2] = waiting[1::-1]
            else:
                limit = first.scheduler.before(rank, tag + runner.model.full)
    again: float | None = None
    busy_until = max(device.expected_end_ms) if device.expected_end_ms else None
    for network, runner in waiting:
        policy, queue, skip = runner.policy, network.scheduler, 0
        most = min(policy.largest_batch, limit)
        decision: LaunchNow | Wait
        # A side-by-side batch has its own part of the processor and need not wait for the one in flight.
        blocked_until = None if runner.backend.side_by_side else busy_until
        if len(network.in_use) == 1:
            decision = policy.decide(queue.pending(most), now, blocked_until)
        else:
            others = [station(each, now) for each in network.in_use if each is not runner]
            own = station(runner, now)
            decision, skip = place(queue, policy, most, own, others, now, blocked_until)
        if isinstance(decision, LaunchNow):
            positions = decision.positions
            # Only a batch that runs alone tells its time, so a trial among concurrent ones would never end.
            alone = positions == policy.model.trial and runner.backend.computes_beside(positions)
            if not alone or busy_until is None:
                segments = queue.take(positions, now, skip)
                job = Job(network, segments, sum([stop - start for _, start, stop in segments]), alone=alone)
                queue.ran(runner.policy.model.milliseconds(job.positions), segments)
                device.yields = queue if 2 * positions < policy.model.full else None
                return job, runner, None
            decision = Wait(free_at_ms(busy_until, now))
        limit = sys.maxsize
        again = decision.until_ms if again is None else min(again, decision.until_ms)
        if blocked_until is not None and not isinstance(decision, Leave):
            break  # A full batch of a network that is less urgent would go before it, again and again.
    return None, None, again


def station(runner: Runner, now: float) -> Station:
    """Return a device's station, as seen by others that could run the same network."""
    ends = runner.device.expected_end_ms
    if not ends:
        return Station(runner.model, now)
    if not runner.backend.side_by_side:
        return Station(runner.model, free_at_ms(max(ends), now))
    idle_part = len(ends) < runner.backend.max_in_flight
    return Station(runner.model, now if idle_part else free_at_ms(min(ends), now))


def _wanted(network: ServedNetwork, queued: int, now: float) -> list[Runner]:
    """Return the runners of several devices that may have to start on queued positions."""
    runners = network.in_use
    if not runners:
        return []
    _, parts = share_out([station(runner, now) for runner in runners], queued)
    wanted = [runner for runner, part in zip(runners, parts, strict=True) if part]
    # If all requests can begin now, that is all. Otherwise notify idle devices, too; they keep checking.
    return runners if any(runner.device.expected_end_ms for runner in wanted) else wanted


def expected_wait_ms(
    networks: Sequence[ServedNetwork], network: ServedNetwork, request: Request, now: float
) -> float:
    """Return the minimum wait of a request of one of the networks if it were queued now. It ends with the
    work before the request on its devices, less one batch per device, in which the request might fit."""
    runners = network.in_use
    devices = {runner.device for runner in runners}
    queues = [each.scheduler for each in networks if any(runner.device in devices for runner in each.in_use)]
    together = sum([runner.policy.largest_batch for runner in runners])
    if sum([queue.positions for queue in queues]) <= together:
        return 0.0
    ahead = sum([queue.ahead_of(request) for queue in queues]) - together
    return share_out([station(each, now) for each in runners], ahead)[0] - now if ahead > 0 else 0.0


def _hurries(request: Request, network: ServedNetwork) -> bool:
    """Return True if a request of class play wants a shorter latency than the class has."""
    wanted_ms = request.target_ms
    if request.rank or wanted_ms is None:
        return False
    return all(wanted_ms < runner.policy.targets.play for runner in network.all_runners)

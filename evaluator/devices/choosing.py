# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses a device's next batch from the queues of all its networks, and the devices to notify of requests.

Functions on the dispatcher's plain data; its lock and threads are elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.devices.runners import Device, Runner
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.scheduling.batching import Launch, Wait
from evaluator.scheduling.placement import Station, free_at_ms, place, share_out
from evaluator.scheduling.requests import Request, Segment


def next_job(
    networks: Sequence[ServedNetwork], device: Device, now: float
) -> tuple[Job | None, Runner | None, float | None]:
    """Remove the next job for a device from its queue and return it with its runner; without a job, return
    the time to check again."""
    again: float | None = None
    waiting: list[tuple[tuple[int, float], int, ServedNetwork, Runner]] = []
    for index, network in enumerate(networks):
        runner = network.runner_on(device)
        if runner is None or runner.running >= runner.backend.max_in_flight:
            continue
        urgency = network.scheduler.urgency()
        if urgency is not None:
            waiting.append((urgency, index, network, runner))
    waiting.sort(key=lambda entry: entry[:2])
    busy_until = max(device.expected_end_ms, default=None)
    for _, _, network, runner in waiting:
        others = [station(each, now) for each in network.in_use if each is not runner]
        decision, skip = place(
            network.scheduler,
            runner.policy,
            runner.policy.largest_batch,
            station(runner, now),
            others,
            now,
            # A side-by-side batch has its own part of the processor and need not wait for the one in flight.
            None if runner.backend.side_by_side else busy_until,
        )
        if isinstance(decision, Launch):
            positions = decision.positions
            # Only a batch that runs alone tells its time, so a trial among concurrent ones would never end.
            alone = positions == runner.model.trial and runner.backend.computes_beside(positions)
            if not alone or busy_until is None:
                segments = network.scheduler.take(positions, now, skip)
                return _job(networks, network, runner, segments, alone=alone), runner, None
            decision = Wait(free_at_ms(busy_until, now))
        again = decision.until_ms if again is None else min(again, decision.until_ms)
    return None, None, again


def _job(
    networks: Sequence[ServedNetwork],
    network: ServedNetwork,
    runner: Runner,
    segments: list[Segment],
    *,
    alone: bool,
) -> Job:
    """Make a job of segments from a network's queue. The queues of all networks count its time."""
    job = Job(network, segments, sum([stop - start for _, start, stop in segments]), alone=alone)
    batch_ms = runner.model.milliseconds(job.positions)
    for each in networks:
        each.scheduler.ran(batch_ms, segments if each is network else ())
    return job


def station(runner: Runner, now: float) -> Station:
    """Return a device's station, as seen by others that could run the same network."""
    ends = runner.device.expected_end_ms
    if not ends:
        return Station(runner.model, now)
    if not runner.backend.side_by_side:
        return Station(runner.model, free_at_ms(max(ends), now))
    idle_part = len(ends) < runner.backend.max_in_flight
    return Station(runner.model, now if idle_part else free_at_ms(min(ends), now))


def runners_to_notify(network: ServedNetwork, now: float) -> list[Runner]:
    """Return the runners whose devices need a notice of queued requests. Each check of the queue takes the
    GIL from the I/O thread, so others are not notified."""
    queued = network.scheduler.positions
    if not queued:
        return []
    runners = network.in_use
    if len(runners) > 1:
        stations = [station(runner, now) for runner in runners]
        _, parts = share_out(stations, queued)
        wanted = [runner for runner, part in zip(runners, parts, strict=True) if part]
        if not any(runner.device.expected_end_ms for runner in wanted):
            # All requests can begin now. Otherwise notify idle devices, too; they keep checking.
            runners = wanted
    return [runner for runner in runners if not runner.knows_enough(queued)]


def expected_wait_ms(network: ServedNetwork, request: Request, now: float) -> float:
    """Return the minimum wait of a request if it were queued now. It ends with the work before the request,
    less one batch per device, in which the request might fit."""
    runners = network.in_use
    together = sum([runner.policy.largest_batch for runner in runners])
    if not runners or network.scheduler.positions <= together:
        return 0.0
    ahead = network.scheduler.ahead_of(request) - together
    return share_out([station(each, now) for each in runners], ahead)[0] - now if ahead > 0 else 0.0

# SPDX-License-Identifier: GPL-3.0-or-later
"""What a device runs next of what is queued for all its networks, and which devices are notified of requests.

The rules of the dispatcher's choosing half, on its plain data; its lock and its threads are elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.devices.runners import Device, Runner
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.scheduling.batching import Launch
from evaluator.scheduling.placement import Station, free_at_ms, place, share_out
from evaluator.scheduling.requests import Request, Segment


def next_job(
    networks: Sequence[ServedNetwork], device: Device, now: float
) -> tuple[Job | None, Runner | None, float | None]:
    """The next job for a device, taken off its queue, with its runner; if there is none, when to look
    again."""
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
            # Side by side, a batch does not wait for the one in flight to end: there is a part left for it.
            None if runner.backend.side_by_side else busy_until,
        )
        if isinstance(decision, Launch):
            segments = network.scheduler.take(decision.positions, now, skip)
            return _job(networks, network, runner, segments), runner, None
        again = decision.until_ms if again is None else min(again, decision.until_ms)
    return None, None, again


def _job(
    networks: Sequence[ServedNetwork], network: ServedNetwork, runner: Runner, segments: list[Segment]
) -> Job:
    """A job of what was taken off a network's queue. The queues of all networks count its time."""
    job = Job(network, segments, sum([stop - start for _, start, stop in segments]))
    batch_ms = runner.model.milliseconds(job.positions)
    for each in networks:
        each.scheduler.ran(batch_ms, segments if each is network else ())
    return job


def station(runner: Runner, now: float) -> Station:
    """A device as others see it that could run the same network."""
    ends = runner.device.expected_end_ms
    if not ends:
        return Station(runner.model, now)
    if not runner.backend.side_by_side:
        return Station(runner.model, free_at_ms(max(ends), now))
    idle_part = len(ends) < runner.backend.max_in_flight
    return Station(runner.model, now if idle_part else free_at_ms(min(ends), now))


def runners_to_notify(network: ServedNetwork, now: float) -> list[Runner]:
    """The runners for whose devices it is news that something is queued: each look at the queue takes the
    interpreter from the I/O thread."""
    queued = network.scheduler.positions
    if not queued:
        return []
    runners = network.in_use
    if len(runners) > 1:
        stations = [station(runner, now) for runner in runners]
        _, parts = share_out(stations, queued)
        wanted = [runner for runner, part in zip(runners, parts, strict=True) if part]
        if not any(runner.device.expected_end_ms for runner in wanted):
            # All of it can begin now. Otherwise the idle ones look as well, and go on looking.
            runners = wanted
    return [runner for runner in runners if not runner.knows_enough(queued)]


def expected_wait_ms(network: ServedNetwork, request: Request, now: float) -> float:
    """For how long a request would wait, at least, if it were queued now: until the devices have ended what
    is before it, but for one batch each, in which it might ride."""
    runners = network.in_use
    together = sum([runner.policy.largest_batch for runner in runners])
    if not runners or network.scheduler.positions <= together:
        return 0.0
    ahead = network.scheduler.ahead_of(request) - together
    return share_out([station(each, now) for each in runners], ahead)[0] - now if ahead > 0 else 0.0
